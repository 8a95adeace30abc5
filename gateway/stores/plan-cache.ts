import type { Logger } from '../../shared/process/logger.ts';
import {
  DEFAULT_PLANS,
  type PlanTable,
  type RejectedValue,
  readPlans,
  type StoredPlans,
  storedPlans,
} from '../limiter/plans.ts';
import { planActivity } from './activity-entry.ts';
import { changesBetween, versionOf } from './plan-history.ts';
import type { PlanStore } from './stores.ts';

/** Four times a second, so that a change is live within a second, even on a busy machine. */
const REFRESH_MS = 250;

/**
 * The plan table in force. It is read regularly from the store, where people edit it. For an invalid value an alarm is
 * logged, and the last valid one stays. If the table cannot be read, all of it stays.
 */
export class PlanCache {
  #table: PlanTable = DEFAULT_PLANS;
  #stored: StoredPlans | undefined;
  #version: string | undefined;
  #seeded = false;
  #changedAt = new Date();
  #rejected: readonly RejectedValue[] = [];
  #alarmed = '';
  #readable = true;
  #taken = 0;
  #timer: NodeJS.Timeout | undefined;
  #reading: Promise<void> = Promise.resolve();
  #stopped = false;
  readonly #store: PlanStore;
  readonly #watch: PlanWatch;
  readonly #logger: Logger;

  constructor(store: PlanStore, logger: Logger) {
    this.#store = store;
    this.#watch = new PlanWatch(store, logger);
    this.#logger = logger;
  }

  get table(): PlanTable {
    return this.#table;
  }

  /** The version of the table as last read; undefined before that. */
  get version(): string | undefined {
    return this.#version;
  }

  /** The table as last read, with its invalid values; undefined before that. */
  get stored(): StoredPlans | undefined {
    return this.#stored;
  }

  /** The time when the table came into force in this process. */
  get changedAt(): Date {
    return this.#changedAt;
  }

  /** The invalid values in the table as last read. */
  get rejected(): readonly RejectedValue[] {
    return this.#rejected;
  }

  /** Whether the last attempt to read it succeeded. */
  get isReadable(): boolean {
    return this.#readable;
  }

  /** Takes the plans that another process has read, until this one reads the table itself. */
  assume(stored: StoredPlans): void {
    this.#adopt(readPlans(stored, this.#table).table);
  }

  /** Adds missing values, reads the table, and keeps reading it. */
  async start(): Promise<void> {
    this.#reading = this.#readOnce();
    await this.#reading;
    if (!this.#stopped) this.#timer = setTimeout(() => void this.start(), REFRESH_MS).unref();
  }

  /** Ends once nothing is being read or written. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#reading;
  }

  async #readOnce(): Promise<void> {
    await this.refresh();
    if (this.#stored !== undefined) await this.#watch.compare(this.#stored);
  }

  /** Reads the table now. If the store does not respond, the table stays as it is. */
  async refresh(): Promise<void> {
    try {
      if (!this.#seeded) await this.#store.seed(storedPlans(DEFAULT_PLANS));
      this.#seeded = true;
      const takenBefore = this.#taken;
      const stored = await this.#store.read();
      if (this.#taken === takenBefore) this.take(stored);
    } catch (cause) {
      if (this.#readable) this.#logger.error({ err: cause }, 'plan table cannot be read; the last good one stays');
      this.#readable = false;
    }
  }

  /** Takes a table that was just read or written. A read that began earlier may be outdated and is ignored. */
  take(stored: StoredPlans): void {
    this.#taken += 1;
    const { table, rejected } = readPlans(stored, this.#table);
    this.#adopt(table);
    this.#rejected = rejected;
    this.#alarm(rejected);
    this.#stored = stored;
    this.#version = versionOf(stored);
    this.#readable = true;
  }

  #adopt(table: PlanTable): void {
    const changes = changesBetween(storedPlans(this.#table), storedPlans(table));
    if (changes.length === 0) return;
    this.#logger.info({ changes: changes.map(({ field, from, to }) => `${field}: ${from} -> ${to}`) }, 'plans changed');
    this.#table = table;
    this.#changedAt = new Date();
  }

  /** Once per set of invalid values, not once per read. */
  #alarm(rejected: readonly RejectedValue[]): void {
    const fingerprint = JSON.stringify(rejected);
    if (fingerprint === this.#alarmed) return;
    this.#alarmed = fingerprint;
    for (const { field, value, kept } of rejected) {
      this.#logger.error({ field, value: value?.slice(0, 100), kept }, 'plan value rejected; the last good one stays');
    }
  }
}

/**
 * Adds changes made by hand to the history. A gateway records its own changes at once. A change that is present in two
 * regular reads and not recorded was therefore made with redis-cli, or in the file.
 */
class PlanWatch {
  readonly #store: PlanStore;
  readonly #logger: Logger;
  /** The last table in the history, as far as this process knows. */
  #recorded: StoredPlans | undefined;
  #lastVersion: string | undefined;
  /** The version whose lost record has been logged. */
  #lost: string | undefined;

  constructor(store: PlanStore, logger: Logger) {
    this.#store = store;
    this.#logger = logger;
  }

  /** Compares a regular read of the table. Never throws: reading must go on even if the history cannot be written. */
  async compare(stored: StoredPlans): Promise<void> {
    const version = versionOf(stored);
    const hasStood = version === this.#lastVersion;
    this.#lastVersion = version;
    this.#recorded ??= stored;
    if (!hasStood || version === versionOf(this.#recorded)) return;
    const changes = changesBetween(this.#recorded, stored);
    const entries = planActivity(changes, { actor: 'unknown', reason: '', via: 'by hand' });
    try {
      const change = { author: 'unknown', reason: '', action: 'by hand', changes, version } as const;
      const isOurs = await this.#store.recordOnce(change, entries);
      this.#recorded = stored;
      if (isOurs) for (const activity of entries) this.#logger.info({ activity }, 'activity');
    } catch (cause) {
      // Tried again at every read, but logged once.
      if (this.#lost !== version) this.#logger.warn({ err: cause }, 'a change of plans by hand could not be recorded');
      this.#lost = version;
    }
  }
}
