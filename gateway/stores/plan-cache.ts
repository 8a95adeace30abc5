import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../shared/process/logger.ts';
import { repeat } from '../../shared/process/repeat.ts';
import {
  DEFAULT_PLANS,
  type PlanTable,
  type RejectedValue,
  readPlans,
  type StoredPlans,
  storedPlans,
} from '../limiter/plans.ts';
import { changesBetween, isWhole, type Plans, versionOf } from './plans.ts';

/** A change must be in force within a second, even on a busy machine. */
const REFRESH_MS = 250;
/** Longer than another gateway needs to write the last good table back into a store that came back empty. */
const WRITTEN_BACK_MS = 1_500;

/**
 * The plan table in force, read regularly from the store, where people edit it. An invalid value is logged as an error,
 * and the last valid one stays. If the table cannot be read, the whole last table stays.
 */
export class PlanCache {
  /** The table in force: the built-in one until another is known. */
  table: PlanTable = DEFAULT_PLANS;
  /** The table last read, including its invalid values; undefined before the first read. */
  stored: StoredPlans | undefined;
  /** The version of that table. */
  version: string | undefined;
  /** When the table came into force in this process. */
  changedAt = new Date();
  rejected: readonly RejectedValue[] = [];
  /** Whether the last attempt to read the table succeeded. */
  isReadable = true;
  /** The fault of the last failed read. */
  unreadableBecause: unknown;
  /** Whether the last attempt found no table. */
  isMissing = false;
  #hasBegun = false;
  #alarmed = '';
  #taken = 0;
  /** The text of the last table that was adopted, and the table in force since then. Most reads find the same text. */
  #textTaken = '';
  #tableTaken: PlanTable | undefined;
  #reading: Promise<void> = Promise.resolve();
  readonly #stopped = new AbortController();
  readonly #store: Plans;
  readonly #logger: Logger;
  readonly #inForce: { table: PlanTable | undefined };
  readonly #isAtStart: boolean;

  /**
   * @param inForce receives the table that a limiter uses
   * @param isAtStart whether the gateway is starting: only then may the built-in table be written into an empty store
   */
  constructor(
    store: Plans,
    logger: Logger,
    inForce: { table: PlanTable | undefined } = { table: undefined },
    isAtStart = true,
  ) {
    this.#store = store;
    this.#logger = logger;
    this.#inForce = inForce;
    this.#isAtStart = isAtStart;
  }

  /** The table in force; undefined until one has been read, because the built-in limits may be wrong. */
  get ifKnown(): PlanTable | undefined {
    return this.#inForce.table;
  }

  /** The table in force in its stored form; undefined until one has been read. */
  get lastGood(): StoredPlans | undefined {
    return this.#inForce.table && storedPlans(this.#inForce.table);
  }

  /** Uses the plans that another process has read, until this process reads the table itself. */
  assume(stored: StoredPlans): void {
    this.#adopt(readPlans(stored, this.table).table);
  }

  /**
   * Reads the table now and at regular intervals. Writes it first if the store is empty. Resolves after the first
   * attempt.
   */
  start(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#reading = repeat(REFRESH_MS, this.#stopped.signal, () => this.refresh().then(resolve));
    return promise;
  }

  /** Resolves once nothing is being read or written. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#reading;
  }

  /** Reads the table now. If the store does not respond or has no table, the last good one stays. */
  async refresh(): Promise<void> {
    try {
      await this.begin();
      const takenBefore = this.#taken;
      const stored = await this.#store.read();
      if (stored === undefined) this.#miss();
      else if (this.#taken === takenBefore) this.take(stored);
    } catch (cause) {
      if (this.isReadable || this.isMissing)
        this.#logger.error({ err: cause }, 'plan table cannot be read; the last good one stays');
      this.isReadable = false;
      this.unreadableBecause = cause;
      this.isMissing = false;
    }
  }

  /**
   * Makes sure, once, that an empty store has a table. If somebody typed a bad value before this process started, uses
   * the last good one that a gateway kept. @throws {Unavailable}
   */
  async begin(): Promise<void> {
    if (this.#hasBegun) return;
    let kept = await this.#store.readKept();
    if (kept === undefined && this.#isAtStart) {
      if (!this.isReadable) await sleep(WRITTEN_BACK_MS, undefined, { ref: false });
      await this.#store.begin();
      kept = await this.#store.readKept();
    }
    if (kept !== undefined && isWhole(kept)) this.assume(kept);
    this.#hasBegun = true;
  }

  #miss(): void {
    if (!this.isMissing)
      this.#logger.error(
        { hasLastGood: this.ifKnown !== undefined },
        'the plan table is missing; the last good one stays',
      );
    this.isMissing = true;
    this.isReadable = false;
  }

  /** Adopts a table that was just read or written. A read that began earlier is ignored: it may be outdated. */
  take(stored: StoredPlans): void {
    this.#taken += 1;
    const text = JSON.stringify(stored);
    if (text === this.#textTaken && this.isReadable && this.table === this.#tableTaken) return;
    const { table, rejected } = readPlans(stored, this.table);
    // A missing or bad value in the first table has no last good value: built-in values do not count.
    const isUsable = this.ifKnown !== undefined || isWhole(stored);
    this.rejected = isUsable ? rejected : rejected.map((value) => ({ ...value, kept: undefined }));
    this.#alarm(this.rejected);
    if (!this.isReadable) this.#logger.info('plan table can be read again');
    this.isReadable = true;
    this.isMissing = false;
    if (!isUsable) return;
    this.#adopt(table);
    this.stored = stored;
    this.version = versionOf(stored);
    this.#textTaken = text;
    this.#tableTaken = this.table;
  }

  #adopt(table: PlanTable): void {
    const changes = changesBetween(storedPlans(this.table), storedPlans(table));
    this.#inForce.table = changes.length === 0 ? this.table : table;
    if (changes.length === 0) return;
    this.#logger.info({ changes: changes.map(({ field, from, to }) => `${field}: ${from} -> ${to}`) }, 'plans changed');
    this.table = table;
    this.changedAt = new Date();
  }

  /** Logs a set of invalid values once, not at every read. */
  #alarm(rejected: readonly RejectedValue[]): void {
    const fingerprint = JSON.stringify(rejected);
    if (fingerprint === this.#alarmed) return;
    this.#alarmed = fingerprint;
    for (const { field, value, kept } of rejected) {
      this.#logger.error({ field, value: value?.slice(0, 100), kept }, 'plan value rejected; the last good one stays');
    }
  }
}
