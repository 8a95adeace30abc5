import { dirname } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { createFolder, createForOwner, DatabaseFile, mayBeMade, primaryCode } from '../../shared/database-file.ts';
import { OutcomeUnknown, Unavailable } from '../../shared/domain-errors.ts';
import { migrate } from './migrations.ts';
import { readTables } from './queries.ts';
import type { Row, Statement, Store, Transaction, Value } from './store.ts';

/** Waiting for another process's lock blocks every request, so the wait is short. */
const LOCK_TIMEOUT_MS = 1_000;
const CHECK_LOCK_TIMEOUT_MS = 100;

/**
 * Faults that may pass (sqlite.org/rescode.html): busy, locked, out of memory, read-only, I/O error, full, cannot open.
 */
const UNAVAILABLE: ReadonlySet<number> = new Set([5, 6, 7, 8, 10, 13, 14]);

const GONE =
  'The database file was removed or replaced. Put it back, or restart the core to use the file that is there now.';

/** Called for every commit with its number of writes and its duration in seconds. */
type CommitObserver = (writes: number, seconds: number) => void;

interface Waiting {
  run(): unknown;
  resolve(result: unknown): void;
  reject(fault: unknown): void;
}

/**
 * One SQLite file. The writes in one turn of the event loop share one commit and one fsync, and resolve after it. A
 * failed write is rolled back without the others.
 */
export class SqliteStore implements Store {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, Prepared>();
  readonly #file: DatabaseFile;
  readonly #onCommit: CommitObserver;
  #waiting: Waiting[] = [];

  /** @param path the file, which is created if missing, with its folder */
  constructor(path: string, onCommit: CommitObserver = () => {}) {
    createFolder(dirname(path), 0o700);
    createForOwner(path);
    this.#onCommit = onCommit;
    this.#database = new DatabaseSync(path, { readBigInts: true, timeout: LOCK_TIMEOUT_MS });
    // FULL: a commit is on disk before it is acknowledged, so it survives a power cut as well as a crash.
    this.#database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;');
    this.#database.exec('BEGIN IMMEDIATE');
    this.#run(migrate('sqlite'));
    this.#database.exec('COMMIT');
    this.#file = new DatabaseFile(this.#database.location());
  }

  async read<T>(transaction: () => Transaction<T>): Promise<T> {
    return this.#run(transaction());
  }

  write<T>(transaction: () => Transaction<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const waiting = { run: () => this.#run(transaction()), resolve: resolve as (result: unknown) => void, reject };
    if (this.#waiting.push(waiting) === 1) setImmediate(() => this.#commitWaiting());
    return promise;
  }

  async check(): Promise<void> {
    this.#run(readTables());
    this.#checkFile();
    this.#checkWritable();
  }

  #checkFile(): void {
    if (this.#file.isGone) throw new Unavailable(GONE);
  }

  /** Takes and releases the write lock. This writes nothing, but detects a locked or read-only file. */
  #checkWritable(): void {
    try {
      this.#database.exec(`PRAGMA busy_timeout = ${CHECK_LOCK_TIMEOUT_MS}; BEGIN IMMEDIATE; ROLLBACK`);
    } catch (fault) {
      throw storeFault(fault);
    } finally {
      this.#database.exec(`PRAGMA busy_timeout = ${LOCK_TIMEOUT_MS}`);
    }
  }

  async close(): Promise<void> {
    this.#commitWaiting();
    this.#database.close();
  }

  #commitWaiting(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    if (waiting.length > 0) this.#commit(waiting);
  }

  #commit(group: readonly Waiting[]): void {
    const startedAt = performance.now();
    let isCommitting = false;
    try {
      this.#checkFile();
      this.#execute('BEGIN IMMEDIATE');
      const settlements = this.#attemptAll(group);
      isCommitting = true;
      this.#execute('COMMIT');
      this.#onCommit(group.length, (performance.now() - startedAt) / 1_000);
      for (const settle of settlements) settle();
    } catch (cause) {
      if (this.#database.isTransaction) this.#execute('ROLLBACK');
      const fault = isCommitting && mayBeMade(cause) ? new OutcomeUnknown(cause) : storeFault(cause);
      for (const { reject } of group) reject(fault);
    }
  }

  /**
   * If one write fails, all of them run again, each with a savepoint. The first run has none, because a savepoint costs
   * as much as a write.
   * @returns functions that settle the promises
   */
  #attemptAll(group: readonly Waiting[]): (() => void)[] {
    try {
      return group.map(({ run, resolve }) => resolve.bind(undefined, run()));
    } catch (fault) {
      // On a full or failing disk, SQLite itself rolls back the whole transaction.
      if (!this.#database.isTransaction) throw fault;
      this.#execute('ROLLBACK');
      this.#execute('BEGIN IMMEDIATE');
      return group.map((waiting) => this.#attempt(waiting));
    }
  }

  /** Runs one write of a group. If it fails, only this write is rolled back. */
  #attempt({ run, resolve, reject }: Waiting): () => void {
    this.#execute('SAVEPOINT one_write');
    try {
      const result = run();
      this.#execute('RELEASE one_write');
      return () => resolve(result);
    } catch (fault) {
      if (!this.#database.isTransaction) throw fault;
      this.#execute('ROLLBACK TO one_write');
      this.#execute('RELEASE one_write');
      return () => reject(fault);
    }
  }

  #run<T>(transaction: Transaction<T>): T {
    let step = transaction.next();
    while (!step.done) step = this.#step(transaction, step.value);
    return step.value;
  }

  /** The error of a failed statement is thrown into the transaction, which may handle it. */
  #step<T>(transaction: Transaction<T>, { sql, values }: Statement): IteratorResult<Statement, T> {
    let rows: Row[];
    try {
      rows = this.#prepared(sql).rows(values);
    } catch (fault) {
      return transaction.throw(storeFault(fault));
    }
    return transaction.next(rows);
  }

  #execute(sql: string): void {
    this.#prepared(sql).run();
  }

  /** FOR UPDATE is removed: a writer locks the whole file anyway. */
  #prepared(sql: string): Prepared {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const statement = new Prepared(this.#database.prepare(sql.replaceAll(/\$(\d)/g, '?$1').replace(' FOR UPDATE', '')));
    this.#statements.set(sql, statement);
    return statement;
  }
}

/**
 * A statement that reads rows as arrays. It builds the row objects itself, because node:sqlite's own are slow to create
 * and to read.
 */
class Prepared {
  readonly #statement: StatementSync;
  readonly #columns: readonly string[];

  constructor(statement: StatementSync) {
    this.#statement = statement;
    this.#columns = statement.columns().map(({ name }) => name);
    statement.setReturnArrays(true);
  }

  run(): void {
    this.#statement.run();
  }

  rows(values: readonly Value[]): Row[] {
    return (this.#statement.all(...values) as unknown as Value[][]).map((row) => this.#named(row));
  }

  #named(values: readonly Value[]): Row {
    const row: Record<string, Value> = {};
    for (let at = 0; at < values.length; at++) row[this.#columns[at] as string] = values[at] as Value;
    return row;
  }
}

function storeFault(fault: unknown): unknown {
  return UNAVAILABLE.has(primaryCode(fault)) ? new Unavailable(fault) : fault;
}
