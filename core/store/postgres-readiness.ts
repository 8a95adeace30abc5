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
 * Checks whether PostgreSQL can serve. The check has its own connection, because in the pool it would wait behind
 * requests.
 *
 * A slow database makes no core unready: it is slow for all cores, so they would all become unready at once. Only a
 * fact changes readiness: PostgreSQL cannot be reached, refuses the core, lacks a table or takes no writes. A check
 * that takes too long returns the last result again.
 */
export class PostgresReadiness {
  readonly #open: () => Promise<pg.Client>;
  readonly #names = new StatementNames();
  #client: pg.Client | undefined;
  #underWay: Promise<void> | undefined;
  #lastFault: unknown;

  /** @param open opens a connection that nobody else uses */
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

  /** A new connection also gets settings that an old one does not notice, such as read-only mode. */
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
