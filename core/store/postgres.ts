import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { OutcomeUnknown, Unavailable } from '../../shared/domain-errors.ts';
import type { DatabaseUrl } from './database-url.ts';
import { migrate } from './migrations.ts';
import {
  codeOf,
  isConnectionLost,
  isPasswordOutdated,
  isSlow,
  isToBeRunAgain,
  isUnavailable,
  LOCK_NOT_AVAILABLE,
  PASSWORD_REFUSED,
  PasswordOutdated,
  PostgresSilent,
  READ_ONLY,
} from './postgres-faults.ts';
import { readTables } from './queries.ts';
import type { Row, Statement, Store, Transaction } from './store.ts';

/** The number of connections per core, in addition to the one for readiness. */
export const CONNECTIONS = 10;
const MAX_ATTEMPTS = 3;
/** A connection that is older than this may have been opened with settings that no longer apply. */
const OUTDATED_AFTER_MS = 1_000;
/** Any number works if all cores use the same one. */
const MIGRATION_LOCK = 7_261_001;

/**
 * PostgreSQL, for any number of cores. Statements are prepared once per connection; each transaction has its own
 * connection.
 */
export class PostgresStore implements Store {
  readonly #pool: pg.Pool;
  /** Connections that were opened before this time are replaced, by performance.now(). */
  #openedSince = 0;
  readonly #readiness: PostgresReadiness;

  private constructor(url: DatabaseUrl) {
    const Client = connectionsTo(url);
    this.#pool = new pg.Pool({ ...CONNECTION_OPTIONS, max: CONNECTIONS, Client });
    // A broken idle connection is replaced when the next one is needed. Without this listener its error would crash the
    // process.
    this.#pool.on('error', () => {});
    this.#readiness = new PostgresReadiness(() => repeatedIf(isPasswordOutdated, () => openAlone(Client)));
  }

  /**
   * Connects and applies the missing schema steps. Cores that start together take turns.
   * @throws {Error} if the database cannot be used
   */
  static async open(url: DatabaseUrl): Promise<PostgresStore> {
    const store = new PostgresStore(url);
    await store.#withConnection((client) =>
      inTransaction(client, async () => {
        await client.query('SELECT pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
        await checkEncoding(client);
        await run(client, migrate('postgres'));
      }),
    );
    return store;
  }

  read<T>(transaction: () => Transaction<T>): Promise<T> {
    return this.#withConnection((client) => repeatedIf(isToBeRunAgain, () => run(client, transaction())));
  }

  write<T>(transaction: () => Transaction<T>): Promise<T> {
    return this.#withConnection((client) =>
      repeatedIf(isToBeRunAgain, () => inTransaction(client, () => run(client, transaction()))),
    );
  }

  check(): Promise<void> {
    return this.#readiness.check();
  }

  async close(): Promise<void> {
    await this.#readiness.close();
    await this.#pool.end();
  }

  /**
   * A connection keeps the settings with which it was opened. If one of them makes it read-only, `use` is repeated on a
   * new connection, and all others are replaced before their next use.
   * @throws {OutcomeUnknown} if the connection breaks during a commit
   * @throws {Unavailable} if no connection is available, if it breaks, or if PostgreSQL currently lacks a resource
   */
  async #withConnection<T>(use: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#connect().catch((cause: unknown) => {
      throw new Unavailable(cause);
    });
    let broken = false;
    let outdated = false;
    try {
      return await use(client);
    } catch (fault) {
      broken = isConnectionLost(fault);
      outdated = codeOf(fault) === READ_ONLY && performance.now() - openedAt(client) > OUTDATED_AFTER_MS;
      if (!outdated) throw isUnavailable(fault) && !(fault instanceof OutcomeUnknown) ? new Unavailable(fault) : fault;
    } finally {
      client.release(broken || outdated);
    }
    this.#openedSince = performance.now();
    return await this.#withConnection(use);
  }

  async #connect(): Promise<pg.PoolClient> {
    for (;;) {
      const client = await repeatedIf(isPasswordOutdated, () => this.#pool.connect());
      if (openedAt(client) >= this.#openedSince) return client;
      client.release(true);
    }
  }
}

/** Encodings that store every text. PostgreSQL stores text as it is in SQL_ASCII, and rejects characters that others lack. */
const ENCODINGS: readonly unknown[] = ['UTF8', 'SQL_ASCII'];

async function checkEncoding(client: pg.ClientBase): Promise<void> {
  const { rows } = await client.query('SHOW server_encoding');
  const encoding = rows[0]?.server_encoding;
  if (!ENCODINGS.includes(encoding)) throw new Error(`its encoding is ${encoding}, not UTF8`);
}

async function openAlone(Client: ReturnType<typeof connectionsTo>): Promise<pg.Client> {
  const client = new Client(CONNECTION_OPTIONS);
  await client.connect();
  return client;
}

const CONNECT_TIMEOUT_MS = 1_000;
/**
 * Together with the wait for a connection, this is less than the 5 s that a gateway waits, so that its client gets the
 * core's 503.
 */
const STATEMENT_TIMEOUT_MS = 3_500;
/** Applies if PostgreSQL itself is too slow to cancel a statement. */
const QUERY_TIMEOUT_MS = 3_800;

/** Reads int8 and count() as bigint, and everything else as pg does. */
const types = {
  getTypeParser: (oid: number, format?: 'text' | 'binary') =>
    oid === pg.types.builtins.INT8 ? BigInt : pg.types.getTypeParser(oid, format as 'text'),
} as pg.CustomTypesConfig;

const CONNECTION_OPTIONS = {
  connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  statement_timeout: STATEMENT_TIMEOUT_MS,
  query_timeout: QUERY_TIMEOUT_MS,
  types,
} satisfies pg.ClientConfig;

/** The class of connections that read the current URL when they connect. */
const connectionsTo = (url: DatabaseUrl) =>
  class extends pg.Client {
    readonly openedAt = performance.now();
    readonly #url: string;
    readonly #wasAccepted: () => boolean;

    constructor(options: pg.ClientConfig = {}) {
      const socket = new net.Socket();
      let wasAccepted = false;
      socket.once('connect', () => {
        wasAccepted = true;
      });
      const connectionString = url.forNewConnection();
      super({ ...options, connectionString, stream: () => socket });
      // PostgreSQL can end a connection at any time, even as it opens. The next query on it is rejected; without this
      // listener, the event would crash the process.
      this.on('error', () => {});
      this.#url = connectionString;
      this.#wasAccepted = () => wasAccepted;
    }

    override connect(): Promise<this>;
    override connect(done: (fault: Error | undefined) => void): void;
    override connect(done?: (fault: Error | undefined) => void): Promise<this> | undefined {
      const connected = this.#connect();
      if (done === undefined) return connected;
      void connected.then(() => done(undefined), done);
      return undefined;
    }

    async #connect(): Promise<this> {
      try {
        await super.connect();
        url.accepted(this.#url);
        return this;
      } catch (fault) {
        if (PASSWORD_REFUSED.has(codeOf(fault)) && url.refused(this.#url)) throw new PasswordOutdated(fault);
        throw this.#wasAccepted() && (fault as Error).message === 'timeout expired' ? new PostgresSilent() : fault;
      }
    }
  };

const openedAt = (client: pg.PoolClient) => (client as pg.PoolClient & { readonly openedAt: number }).openedAt;

/** Statement names by SQL text. All statements are constants, so there are few. */
const names = new Map<string, string>();

/** A named statement is prepared once per connection. */
function nameOf(sql: string): string {
  const name = names.get(sql) ?? `s${names.size}`;
  names.set(sql, name);
  return name;
}

/** Calls `act`, up to three times if it fails with a fault that a repetition may avoid. */
async function repeatedIf<T>(mayBeAvoided: (fault: unknown) => boolean, act: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await act();
    } catch (fault) {
      if (attempt === MAX_ATTEMPTS || !mayBeAvoided(fault)) throw fault;
    }
  }
}

/** Runs the statements of a transaction. */
async function run<T>(client: pg.ClientBase, transaction: Transaction<T>): Promise<T> {
  let step = transaction.next();
  while (!step.done) step = await runStep(client, transaction, step.value);
  return step.value;
}

/** The error of a failed statement is thrown into the transaction, which may handle it. */
async function runStep<T>(
  client: pg.ClientBase,
  transaction: Transaction<T>,
  { sql, values }: Statement,
): Promise<IteratorResult<Statement, T>> {
  let rows: Row[];
  try {
    rows = (await client.query<Row>({ name: nameOf(sql), text: sql, values: [...values] })).rows;
  } catch (fault) {
    return transaction.throw(fault);
  }
  return transaction.next(rows);
}

/**
 * Makes all changes of `use` on this connection, or none of them. The queries lock the rows that they depend on, so a
 * stricter isolation would only make concurrent transactions fail.
 * @throws {OutcomeUnknown} if the connection breaks during the commit
 */
async function inTransaction<T>(client: pg.ClientBase, use: () => Promise<T>): Promise<T> {
  await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
  let isCommitting = false;
  try {
    const result = await use();
    isCommitting = true;
    await client.query('COMMIT');
    return result;
  } catch (fault) {
    if (!isConnectionLost(fault)) await client.query('ROLLBACK');
    else if (isCommitting) throw new OutcomeUnknown(fault);
    throw fault;
  }
}

/** A check is answered within this time, whatever the database does. A gateway's probe waits twice as long. */
export const CHECK_WITHIN_MS = 500;
const LOCK_TIMEOUT_MS = 100;

/**
 * Checks whether PostgreSQL can serve. The check has its own connection, because in the pool it would wait behind
 * requests.
 *
 * A slow database does not make a core unready: it is slow for all cores, so they would all become unready at once.
 * Only a definite fault makes a core unready: PostgreSQL cannot be reached, refuses the core (perhaps because it has too
 * many connections), lacks a table or accepts no writes. A check that takes too long returns the last result again.
 */
class PostgresReadiness {
  readonly #open: () => Promise<pg.Client>;
  #client: pg.Client | undefined;
  #underWay: Promise<void> | undefined;
  #lastFault: unknown;

  /** @param open opens a connection for this object alone */
  constructor(open: () => Promise<pg.Client>) {
    this.#open = open;
  }

  /** Concurrent calls share one check. @throws {Unavailable} or the fault that was found */
  async check(): Promise<void> {
    this.#underWay ??= this.#find().finally(() => {
      this.#underWay = undefined;
    });
    const enough = new AbortController();
    const late = sleep(CHECK_WITHIN_MS, undefined, { signal: enough.signal }).catch(() => {});
    await Promise.race([this.#underWay, late]);
    enough.abort();
    if (this.#lastFault !== undefined) throw this.#lastFault;
  }

  async close(): Promise<void> {
    await this.#drop();
    await this.#underWay;
    await this.#drop();
  }

  /** A connection that broke since the last check does not show that a new one would fail, so a new one is tried. */
  async #find(): Promise<void> {
    const isReused = this.#client !== undefined;
    try {
      this.#client ??= await this.#open();
      await this.#askTables(this.#client);
      this.#lastFault = undefined;
    } catch (fault) {
      await this.#drop();
      if (isReused && isConnectionLost(fault) && !isSlow(fault)) return await this.#find();
      if (isSlow(fault)) this.#lastFault = undefined;
      else this.#lastFault = isUnavailable(fault) ? new Unavailable(fault) : fault;
    }
  }

  /** A new connection also picks up settings that an old one misses, such as read-only mode. */
  async #drop(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    await client?.end().catch(() => {});
  }

  /** A locked table counts as present: requests for other tables can still be served. */
  async #askTables(client: pg.Client): Promise<void> {
    await inTransaction(client, async () => {
      await client.query(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
      try {
        await run(client, readTables());
      } catch (fault) {
        if (codeOf(fault) === LOCK_NOT_AVAILABLE) return;
        throw fault;
      }
      const { rows } = await client.query<{ readOnly: string }>(
        `SELECT current_setting('transaction_read_only') AS "readOnly"`,
      );
      if (rows[0]?.readOnly === 'on')
        throw new Unavailable('PostgreSQL accepts no writes: it is read-only, or a replica.');
    });
  }
}
