const MAX_IDS = 16_384;

/**
 * Request ids that clients chose, of requests to one core lately. Such an id can repeat; then the answer to the first request
 * would pass for that to the second. Ids that the gateway makes are random and need not be remembered.
 */
export class RecentIds {
  #newer = new Set<string>();
  #older = new Set<string>();

  /** Notes an id. @returns whether it was there */
  note(id: string): boolean {
    if (this.#newer.has(id) || this.#older.has(id)) return true;
    if (this.#newer.size === MAX_IDS) {
      this.#older = this.#newer;
      this.#newer = new Set();
    }
    this.#newer.add(id);
    return false;
  }
}
