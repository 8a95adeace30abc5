/**
 * A map with a bound: entries that were not used for longest go first. Two generations instead of a list in order of use: a use
 * costs one look-up, and the last `size / 2` keys in use are always there.
 */
export class RecentlyUsed<K, V> {
  readonly #half: number;
  #recent = new Map<K, V>();
  #older = new Map<K, V>();

  /** @param size the most entries that are kept */
  constructor(size: number) {
    this.#half = Math.ceil(size / 2);
  }

  get(key: K): V | undefined {
    const value = this.#recent.get(key);
    if (value !== undefined) return value;
    const older = this.#older.get(key);
    if (older !== undefined) this.set(key, older);
    return older;
  }

  set(key: K, value: V): void {
    this.#recent.set(key, value);
    if (this.#recent.size < this.#half) return;
    this.#older = this.#recent;
    this.#recent = new Map();
  }

  delete(key: K): void {
    this.#recent.delete(key);
    this.#older.delete(key);
  }
}
