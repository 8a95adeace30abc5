import { RecentlyUsed } from '../../shared/recently-used.ts';

const MAX_IDS = 32_768;

/**
 * Request ids that clients chose, of requests to one core lately. Such an id can repeat; then the answer to the first request
 * would pass for that to the second. Ids that the gateway makes are random and need not be remembered.
 */
export class RecentIds {
  readonly #ids = new RecentlyUsed<string, true>(MAX_IDS);

  /** Notes an id. @returns whether it was there */
  note(id: string): boolean {
    if (this.#ids.get(id) === true) return true;
    this.#ids.set(id, true);
    return false;
  }
}
