import { Conflict, Unavailable } from '../../shared/domain-errors.ts';

/**
 * Storage for pets and orders. A write that resolves is on disk. A store that cannot be reached, or lacks disk or
 * memory, throws {Unavailable} at once. An error that a transaction throws undoes it completely and is passed on
 * unchanged.
 */
export interface Store {
  /** Runs statements that change nothing. */
  read<T>(transaction: () => Transaction<T>): Promise<T>;
  /**
   * Runs a transaction completely or not at all. May run it again from the start if the database requires that.
   * @throws {OutcomeUnknown} if the transaction may have been committed
   */
  write<T>(transaction: () => Transaction<T>): Promise<T>;
  /**
   * Checks whether requests can be served, without changing anything.
   * @throws if something that they need is missing
   */
  check(): Promise<void>;
  close(): Promise<void>;
}

/** A part of a list: up to `limit` entries with ids above `after`, by ascending id. */
export interface Page<Status> {
  readonly limit: number;
  readonly after?: bigint | undefined;
  readonly status?: Status | undefined;
}

export type Value = string | number | bigint | null;

export interface Statement {
  /** Parameters are $1, $2, …, and column names that are not in lower case are quoted, which both databases accept. */
  readonly sql: string;
  readonly values: readonly Value[];
}

export type Row = Readonly<Record<string, Value>>;

/**
 * A transaction is a generator: it yields statements and receives their rows. This way the rules are written once, and
 * both a synchronous and an asynchronous store can run them.
 */
export type Transaction<T> = Generator<Statement, T, readonly Row[]>;

/** The rows of one statement. Integers are bigints in every column and database. */
export function* query<R>(sql: string, ...values: Value[]): Transaction<readonly R[]> {
  return (yield { sql, values }) as unknown as readonly R[];
}

/** The first row of a statement, or undefined. */
export function* queryOne<R>(sql: string, ...values: Value[]): Transaction<R | undefined> {
  return (yield { sql, values })[0] as R | undefined;
}

/**
 * `unavailable`: the store cannot be reached, is locked, or lacks disk, memory or time. `failed`: any other fault
 * except a Conflict.
 */
export const STORE_FAULTS = ['unavailable', 'failed'] as const;
type StoreFault = (typeof STORE_FAULTS)[number];

/** A store that counts its faults. A Conflict is not a fault: it becomes a 409. */
export function countFaults(store: Store, count: (fault: StoreFault) => void): Store {
  async function watched<T>(work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (thrown) {
      if (thrown instanceof Unavailable) count('unavailable');
      else if (!(thrown instanceof Conflict)) count('failed');
      throw thrown;
    }
  }

  return {
    read: (transaction) => watched(store.read(transaction)),
    write: (transaction) => watched(store.write(transaction)),
    check: () => watched(store.check()),
    close: () => store.close(),
  };
}
