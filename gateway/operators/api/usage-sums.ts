import type { UsageSum } from './answers.ts';

/** Sums of usage by the value of a tag. Each answer sums the keys that it checked; readers add the answers up. */

export class UsageSums {
  readonly #sums = new Map<string | undefined, UsageSum>();

  add({ value, keys, admitted, refused }: UsageSum): void {
    const sum = this.#sums.get(value) ?? { keys: 0, admitted: 0, refused: 0 };
    this.#sums.set(value, {
      value,
      keys: sum.keys + keys,
      admitted: sum.admitted + admitted,
      refused: sum.refused + refused,
    });
  }

  /** The largest first. */
  rows(): UsageSum[] {
    return [...this.#sums.values()].sort(largestFirst);
  }
}

type Used = Pick<UsageSum, 'admitted' | 'refused'>;

/** By admitted requests, then by refused ones. */
export const largestFirst = (a: Used, b: Used): number => b.admitted - a.admitted || b.refused - a.refused;
