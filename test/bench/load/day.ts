import { type Ask, LIST } from './asks.ts';

/**
 * A real day's mix: many keys, some used far more often than others, few writes, and a tenth of the requests over the
 * limit.
 */

const REQUESTS = 20_000;
const OF_LIST = 0.9;
const OF_ONE = 0.05;
export const OVER_LIMIT = 0.1;

/** A request of the mix. `key` is the index of its key, or undefined for a key that is over its limit. */
interface Drawn extends Omit<Ask, 'key'> {
  readonly key: number | undefined;
}

let drawn: readonly Drawn[] | undefined;

/**
 * Returns the requests of the mix, which is the same for all contenders of a run.
 * @param keys the most used ones first (Zipf's law)
 * @param over keys that are over their limit, used in turn
 * @param pets the number of pets, whose ids count from 1
 */
export function aDay(keys: readonly string[], over: readonly string[], pets: number): Ask[] {
  drawn ??= draw(keys.length, pets);
  return drawn.map((ask, at) => ({
    ...ask,
    key: (ask.key === undefined ? over[at % over.length] : keys[ask.key]) ?? '',
  }));
}

function draw(keys: number, pets: number): Drawn[] {
  // The share of the i-th key is proportional to 1/i (Zipf's law, exponent 1), which comes close to real API traffic.
  let total = 0;
  const sums = Array.from({ length: keys }, (_, at) => (total += 1 / (at + 1)));
  return Array.from({ length: REQUESTS }, (): Drawn => {
    const key = Math.random() < OVER_LIMIT ? undefined : pick(sums, Math.random() * total);
    const kind = Math.random();
    if (kind < OF_LIST) return { method: 'GET', path: LIST, key };
    if (kind < OF_LIST + OF_ONE) return { method: 'GET', path: `${LIST}/${1 + Math.floor(Math.random() * pets)}`, key };
    return { method: 'POST', path: LIST, key };
  });
}

/** The index of the first sum that is at least this large. */
const pick = (sums: readonly number[], least: number): number => sums.findIndex((sum) => sum >= least);
