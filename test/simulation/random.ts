/** Pseudorandom numbers (mulberry32). A seed determines the sequence, and a fork has a sequence of its own. */
export class Random {
  readonly #seed: string;
  #state: number;

  constructor(seed: string) {
    this.#seed = seed;
    this.#state = 0x811c9dc5;
    for (const character of seed) this.#state = Math.imul(this.#state ^ character.charCodeAt(0), 0x01000193);
  }

  fork(name: string | number): Random {
    return new Random(`${this.#seed}/${name}`);
  }

  /** @returns a number from 0 up to, but not including, 1 */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** @returns a whole number from `least` to `most` */
  between(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(options: readonly T[]): T {
    return options[this.between(0, options.length - 1)] as T;
  }
}
