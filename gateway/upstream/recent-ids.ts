import { LRUCache } from 'lru-cache';

const MAX_IDS = 32_768;

/**
 * Request ids chosen by clients, of recent requests to one core. If such an id repeats, the answer to the first request
 * could be taken for the answer to the second. Ids made by the gateway are random and need not be remembered.
 */
export class RecentIds {
  readonly #ids = new LRUCache<string, true>({ max: MAX_IDS });

  /** Notes an id. @returns whether it was already there */
  note(id: string): boolean {
    if (this.#ids.get(id) === true) return true;
    this.#ids.set(id, true);
    return false;
  }
}
