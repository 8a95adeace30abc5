import type { Logger } from '../../shared/process/logger.ts';
import type { StoredPlans } from '../limiter/plans.ts';
import { planActivity } from './activity-entry.ts';
import { changesBetween, versionOf } from './plan-history.ts';
import type { PlanStore } from './stores.ts';

/**
 * Adds changes made by hand to the history. A gateway records its own changes at once. A change that is present in two
 * regular reads and not recorded was therefore made with redis-cli, or in the file.
 */
export class PlanWatch {
  readonly #store: PlanStore;
  readonly #logger: Logger;
  /** The last table in the history, as far as this process knows. */
  #told: StoredPlans | undefined;
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
    this.#told ??= stored;
    if (!hasStood || version === versionOf(this.#told)) return;
    const changes = changesBetween(this.#told, stored);
    const told = planActivity(changes, { actor: 'unknown', reason: '', via: 'by hand' });
    try {
      const change = { author: 'unknown', reason: '', action: 'by hand', changes, version } as const;
      const isOurs = await this.#store.recordOnce(change, told);
      this.#told = stored;
      if (isOurs) for (const activity of told) this.#logger.info({ activity }, 'activity');
    } catch (cause) {
      // Tried again at every read, but logged once.
      if (this.#lost !== version) this.#logger.warn({ err: cause }, 'a change of plans by hand could not be recorded');
      this.#lost = version;
    }
  }
}
