import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { Unavailable } from '../../shared/domain-errors.ts';
import { codeOf, isConnectionLost, isSlow, isUnavailable, LOCK_NOT_AVAILABLE } from './postgres-faults.ts';
import { inTransaction, run, StatementNames } from './postgres-transaction.ts';
import { readTables } from './readiness.ts';

/** A check is answered within this time, whatever the database does. A gateway gives a probe twice as long. */
export const CHECK_WITHIN_MS = 500;
const LOCK_TIMEOUT_MS = 100;

/**
 * Whether PostgreSQL can serve, asked on a connection of its own: in the pool a check would wait behind requests.
 *
 * A slow database makes requests slow, and no core unready: it is slow for all of them, and they would all leave at
 * once. Only a fact changes readiness: PostgreSQL cannot be reached, refuses us, lacks a table or takes no writes.
 * Silence changes nothing: a check that takes too long repeats the last result.
 */
export class PostgresReadiness {
  readonly #open: () => Promise<pg.Client>;
  readonly #names = new StatementNames();
  #client: pg.Client | undefined;
  #underWay: Promise<void> | undefined;
  #lastFault: unknown;

  /** @param open a connection that nobody else uses */
  constructor(open: () => Promise<pg.Client>) {
    this.#open = open;
  }

  /** Those that ask at the same time get the answer of one check. @throws {Unavailable} or the fault that was found */
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

  /** A connection that broke since the last check says nothing about a new one. */
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

  /** A new connection also sees settings that an old one keeps, such as whether it is read-only. */
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
        await run(client, this.#names, readTables());
      } catch (fault) {
        if (codeOf(fault) === LOCK_NOT_AVAILABLE) return;
        throw fault;
      }
      const { rows } = await client.query<{ readOnly: string }>(
        `SELECT current_setting('transaction_read_only') AS "readOnly"`,
      );
      if (rows[0]?.readOnly === 'on')
        throw new Unavailable('PostgreSQL takes no writes: it is read-only, or a replica.');
    });
  }
}
