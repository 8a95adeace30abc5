import type { Transaction } from './transaction.ts';

/**
 * Storage for pets and orders. A write that resolves is on disk. A store that cannot be reached, or lacks disk or
 * memory, throws {Unavailable} at once. An error thrown by a transaction undoes it completely and is passed on
 * unchanged.
 */
export interface Store {
  /** Runs statements that change nothing. */
  read<T>(transaction: () => Transaction<T>): Promise<T>;
  /** Runs all of a transaction or nothing of it. It may run again from the start if the database asks for that. */
  write<T>(transaction: () => Transaction<T>): Promise<T>;
  /** Checks what serving needs, without changing anything. @throws if it is missing */
  check(): Promise<void>;
  close(): Promise<void>;
}

/** The wanted part of a list: up to `limit` entries with ids above `after`, by ascending id. */
export interface Page<Status> {
  readonly limit: number;
  readonly after?: bigint | undefined;
  readonly status?: Status | undefined;
}
