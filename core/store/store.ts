import type { Transaction } from './transaction.ts';

/**
 * Storage for pets and orders. A write that resolves is on disk. A store that cannot be reached, or lacks disk or
 * memory, throws {Unavailable} at once. An error that a transaction throws undoes it completely and is passed on
 * unchanged.
 */
export interface Store {
  /** Runs statements that change nothing. */
  read<T>(transaction: () => Transaction<T>): Promise<T>;
  /** Runs all of a transaction or nothing of it. May run it again from the start if the database requires that. */
  write<T>(transaction: () => Transaction<T>): Promise<T>;
  /** Checks what serving needs, without changing anything. @throws if something is missing */
  check(): Promise<void>;
  close(): Promise<void>;
}

/** A part of a list: up to `limit` entries with ids above `after`, by ascending id. */
export interface Page<Status> {
  readonly limit: number;
  readonly after?: bigint | undefined;
  readonly status?: Status | undefined;
}
