import pg from 'pg';
import { Unavailable } from '../../shared/domain-errors.ts';
import { MIGRATIONS_TABLE, readMigrations } from './migrations.ts';
import { codeOf, isConnectionLost, isToBeRunAgain, isUnavailable, LOCK_NOT_AVAILABLE } from './postgres-faults.ts';
import { readTables } from './readiness.ts';
import type { Store } from './store.ts';
import type { Row, Statement, Transaction } from './transaction.ts';

const CONNECTIONS = 10;
const CONNECT_TIMEOUT_MS = 1_000;
const STATEMENT_TIMEOUT_MS = 5_000;
const MAX_ATTEMPTS = 3;
const CHECK_LOCK_TIMEOUT_MS = 100;
/** Any number will do, as long as every core takes the same one. */
const MIGRATION_LOCK = 7_261_001;

/** int8 and count() as bigint; everything else as pg has it. */
const types = {
  getTypeParser: (oid: number, format?: 'text' | 'binary') =>
    oid === pg.types.builtins.INT8 ? BigInt : pg.types.getTypeParser(oid, format as 'text'),
} as pg.CustomTypesConfig;

/** PostgreSQL, for any number of cores. Statements are prepared once a connection; a transaction has one to itself. */
export class PostgresStore implements Store {
  readonly #pool: pg.Pool;
  readonly #names = new Map<string, string>();

  private constructor(url: string) {
    this.#pool = new pg.Pool({
      connectionString: url,
      max: CONNECTIONS,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      statement_timeout: STATEMENT_TIMEOUT_MS,
      query_timeout: STATEMENT_TIMEOUT_MS + 1_000,
      types,
    });
    // An idle connection that breaks is replaced by the next one that is needed; without a listener it would end the process.
    this.#pool.on('error', () => {});
  }

  /** Connects, and takes the steps of the schema that are missing. Cores that start at the same moment take turns. */
  static async open(url: string): Promise<PostgresStore> {
    const store = new PostgresStore(url);
    await store.#withConnection((client) => migrate(client));
    return store;
  }

  read<T>(transaction: () => Transaction<T>): Promise<T> {
    return this.#withConnection((client) => this.#run(client, transaction()));
  }

  async write<T>(transaction: () => Transaction<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#withConnection((client) => inTransaction(client, () => this.#run(client, transaction())));
      } catch (fault) {
        if (attempt === MAX_ATTEMPTS || !isToBeRunAgain(fault)) throw fault;
      }
    }
  }

  async check(): Promise<void> {
    await this.#withConnection((client) => inTransaction(client, () => this.#check(client)));
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }

  /** A table that somebody holds for a while is there: those who ask for the others are served. */
  async #check(client: pg.PoolClient): Promise<void> {
    await client.query(`SET LOCAL lock_timeout = ${CHECK_LOCK_TIMEOUT_MS}`);
    try {
      await this.#run(client, readTables());
    } catch (fault) {
      if (codeOf(fault) === LOCK_NOT_AVAILABLE) return;
      throw fault;
    }
    const { rows } = await client.query<{ readOnly: string }>(
      `SELECT current_setting('transaction_read_only') AS "readOnly"`,
    );
    if (rows[0]?.readOnly === 'on') throw new Unavailable('PostgreSQL takes no writes: it is read-only, or a replica.');
  }

  /** @throws {Unavailable} when there is no connection to be had, it broke, or PostgreSQL lacks what it takes now */
  async #withConnection<T>(use: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    let broken = false;
    const client = await this.#pool.connect().catch((cause: unknown) => {
      throw new Unavailable(cause);
    });
    client.on('error', ignore);
    try {
      return await use(client);
    } catch (fault) {
      broken = isConnectionLost(fault);
      throw isUnavailable(fault) ? new Unavailable(fault) : fault;
    } finally {
      client.off('error', ignore);
      client.release(broken);
    }
  }

  async #run<T>(client: pg.PoolClient, transaction: Transaction<T>): Promise<T> {
    let step = transaction.next();
    while (!step.done) step = await this.#step(client, transaction, step.value);
    return step.value;
  }

  /** A statement that fails is the transaction's to handle, as it would be its caller's. */
  async #step<T>(
    client: pg.PoolClient,
    transaction: Transaction<T>,
    { sql, values }: Statement,
  ): Promise<IteratorResult<Statement, T>> {
    let rows: Row[];
    try {
      rows = (await client.query<Row>({ name: this.#nameOf(sql), text: sql, values: [...values] })).rows;
    } catch (fault) {
      return transaction.throw(fault);
    }
    return transaction.next(rows);
  }

  /** A name makes a statement a prepared one; there are as many as there are texts in our code. */
  #nameOf(sql: string): string {
    const name = this.#names.get(sql) ?? `s${this.#names.size}`;
    this.#names.set(sql, name);
    return name;
  }
}

async function inTransaction<T>(client: pg.PoolClient, use: () => Promise<T>): Promise<T> {
  await client.query('BEGIN');
  try {
    const result = await use();
    await client.query('COMMIT');
    return result;
  } catch (fault) {
    if (!isConnectionLost(fault)) await client.query('ROLLBACK');
    throw fault;
  }
}

async function migrate(client: pg.PoolClient): Promise<void> {
  await inTransaction(client, async () => {
    await client.query('SELECT pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
    await client.query(MIGRATIONS_TABLE);
    const { rows } = await client.query<{ version: bigint }>('SELECT version FROM migrations');
    const taken = rows.map(({ version }) => Number(version));
    for (const { version, name, sql } of readMigrations('postgres').filter((step) => !taken.includes(step.version))) {
      await client.query(sql);
      await client.query('INSERT INTO migrations VALUES ($1, $2, $3)', [version, name, new Date().toISOString()]);
    }
  });
}

const ignore = (): void => {};
