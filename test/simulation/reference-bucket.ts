/**
 * A token bucket that counts fractions of a token. The number of fractions in a token is the number of microseconds in
 * the window.
 */
export class ReferenceBucket {
  readonly #window: number;
  #level: number | undefined;
  #limit = 0;
  #at = 0;

  constructor(window: number) {
    this.#window = window;
  }

  copy(): ReferenceBucket {
    const copy = new ReferenceBucket(this.#window);
    [copy.#level, copy.#limit, copy.#at] = [this.#level, this.#limit, this.#at];
    return copy;
  }

  /** The level in fractions. Since the last change, it has been refilled at the lower of the two limits. */
  levelAt(now: number, limit: number): number {
    if (this.#level === undefined) return limit * this.#window;
    const slower = Math.min(this.#limit, limit);
    const level = Math.max(this.#level, -slower * this.#window);
    return Math.min(level + (now - this.#at) * slower, slower * this.#window);
  }

  set(level: number, now: number, limit: number): void {
    [this.#level, this.#limit, this.#at] = [level, limit, now];
  }

  /** @returns whether there was a token; if not, nothing is taken */
  takeToken(now: number, limit: number): boolean {
    const level = this.levelAt(now, limit);
    if (level < this.#window) return false;
    this.set(level - this.#window, now, limit);
    return true;
  }

  /** The microseconds until there is a token. */
  waitAt(now: number, limit: number): number {
    return Math.max(0, Math.ceil((this.#window - this.levelAt(now, limit)) / limit));
  }
}
