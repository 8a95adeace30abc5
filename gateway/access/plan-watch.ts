import type { Logger } from '../../shared/logger.ts';
import type { PlanStore } from './limiter.ts';
import { changesBetween, versionOf } from './plan-history.ts';
import type { StoredPlans } from './plans.ts';

/**
 * Tells the history of changes by hand. Whoever changes the table through a gateway records it right away; so a change that
 * has stood from one regular reading to the next and is not recorded was made with redis-cli, or in the file.
 */
export class PlanWatch {
  readonly #store: PlanStore;
  readonly #logger: Logger;
  /** The last table that the history knows of, as far as this process can tell. */
  #told: StoredPlans | undefined;
  #lastVersion: string | undefined;
  /** The version whose record was told to be lost. */
  #lost: string | undefined;

  constructor(store: PlanStore, logger: Logger) {
    this.#store = store;
    this.#logger = logger;
  }

  /** Takes a regular reading of the table. Never throws: a history that cannot be written must not stop the reading. */
  async compare(stored: StoredPlans): Promise<void> {
    const version = versionOf(stored);
    const hasStood = version === this.#lastVersion;
    this.#lastVersion = version;
    this.#told ??= stored;
    if (!hasStood || version === versionOf(this.#told)) return;
    const changes = changesBetween(this.#told, stored);
    try {
      await this.#store.recordOnce({ author: 'unknown', reason: '', action: 'by hand', changes, version });
      this.#told = stored;
    } catch (cause) {
      // Tried again with every reading; told once.
      if (this.#lost !== version) this.#logger.warn({ err: cause }, 'a change of plans by hand could not be recorded');
      this.#lost = version;
    }
  }
}
