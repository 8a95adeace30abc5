import type { Transaction } from './transaction.ts';

/**
 * Where animals and orders are kept. A write that resolves is on disk. A store that cannot be reached, or lacks disk
 * or memory, throws {Unavailable} at once; what a transaction throws undoes all of it, and comes through as it is.
 */
export interface Store {
  /** Runs statements that change nothing. */
  read<T>(transaction: () => Transaction<T>): Promise<T>;
  /** Runs all of a transaction or nothing of it. It may be run again from the start where databases ask for that. */
  write<T>(transaction: () => Transaction<T>): Promise<T>;
  /** Whether what serving needs is there, without a change to anything. @throws when it is not */
  check(): Promise<void>;
  close(): Promise<void>;
}

/** Which part of a list is wanted: up to `limit` entries whose ids come after `after`, in ascending order of id. */
export interface Page<Status> {
  readonly limit: number;
  readonly after?: bigint | undefined;
  readonly status?: Status | undefined;
}
