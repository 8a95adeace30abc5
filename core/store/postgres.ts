import pg from 'pg';
import { Unavailable } from '../../shared/domain-errors.ts';
import type { DatabaseUrl } from './database-url.ts';
import { MIGRATIONS_TABLE, readMigrations } from './migrations.ts';
import { CONNECTION_OPTIONS, connectionsTo } from './postgres-connection.ts';
import { isConnectionLost, isPasswordRefused, isToBeRunAgain, isUnavailable } from './postgres-faults.ts';
import { PostgresReadiness } from './postgres-readiness.ts';
import { inTransaction, run, StatementNames } from './postgres-transaction.ts';
import type { Store } from './store.ts';
import type { Transaction } from './transaction.ts';

/** The connections of each core. Readiness has another one. */
export const CONNECTIONS = 10;
const MAX_ATTEMPTS = 3;
/** Any number works if all cores use the same one. */
const MIGRATION_LOCK = 7_261_001;

/**
 * PostgreSQL, for any number of cores. Statements are prepared once per connection; each transaction has its own
 * connection.
 */
export class PostgresStore implements Store {
  readonly #url: DatabaseUrl;
  readonly #pool: pg.Pool;
  readonly #readiness: PostgresReadiness;
  readonly #names = new StatementNames();

  private constructor(url: DatabaseUrl) {
    const Client = connectionsTo(url);
    this.#url = url;
    this.#pool = new pg.Pool({ ...CONNECTION_OPTIONS, max: CONNECTIONS, Client });
    // A broken idle connection is replaced when the next one is needed. Without this listener its error would end the
    // process.
    this.#pool.on('error', () => {});
    this.#readiness = new PostgresReadiness(() => this.#retryRefused(() => openAlone(Client)));
  }

  /** Connects and applies the missing schema steps. Cores that start together take turns. */
  static async open(url: DatabaseUrl): Promise<PostgresStore> {
    const store = new PostgresStore(url);
    await store.#withConnection((client) => migrate(client));
    return store;
  }

  read<T>(transaction: () => Transaction<T>): Promise<T> {
    return this.#withConnection((client) => run(client, this.#names, transaction()));
  }

  async write<T>(transaction: () => Transaction<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#withConnection((client) =>
          inTransaction(client, () => run(client, this.#names, transaction())),
        );
      } catch (fault) {
        if (attempt === MAX_ATTEMPTS || !isToBeRunAgain(fault)) throw fault;
      }
    }
  }

  check(): Promise<void> {
    return this.#readiness.check();
  }

  async close(): Promise<void> {
    await this.#readiness.close();
    await this.#pool.end();
  }

  /** @throws {Unavailable} if no connection is available, if it breaks, or if PostgreSQL lacks something at present */
  async #withConnection<T>(use: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    let broken = false;
    const client = await this.#retryRefused(() => this.#pool.connect()).catch((cause: unknown) => {
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

  /** Connects. If the password is refused during its change, tries the other one. */
  async #retryRefused<T>(connect: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await connect();
      } catch (fault) {
        if (attempt === MAX_ATTEMPTS || !isPasswordRefused(fault) || !this.#url.hasOther) throw fault;
      }
    }
  }
}

async function openAlone(Client: ReturnType<typeof connectionsTo>): Promise<pg.Client> {
  const client = new Client(CONNECTION_OPTIONS);
  client.on('error', ignore);
  await client.connect();
  return client;
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
