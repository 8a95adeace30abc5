import { setTimeout as sleep } from 'node:timers/promises';

/** Requests as they come from many clients: at random times, some keys far more often than others, with bursts of one. */
export interface Traffic {
  readonly perSecond: number;
  readonly seconds: number;
  /** For each key how often it is asked with, of all requests. */
  readonly shares: readonly number[];
  /** The first key comes so many times as often in the last tenth of every second. */
  readonly burst: number;
}

/** The share of the i-th of so many keys is as 1/i (Zipf's law, exponent 1): what is measured of API clients comes close. */
export function zipf(keys: number): number[] {
  const weights = Array.from({ length: keys }, (_, at) => 1 / (at + 1));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

/** How often a key comes in a second. */
export function rateOf({ perSecond, shares, burst }: Traffic, key: number): number {
  return perSecond * (shares[key] as number) * (key === 0 ? 0.9 + 0.1 * burst : 1);
}

/** Sends it: an open loop, which waits for no answer. */
export async function replay(traffic: Traffic, send: (key: number) => void): Promise<void> {
  const { perSecond, seconds, shares, burst } = traffic;
  const sums = runningSums(shares);
  const ofFirst = perSecond * (shares[0] as number);
  const startedAt = performance.now();
  let before = 0;
  for (let now = 0; now < seconds; now = (performance.now() - startedAt) / 1_000) {
    for (let due = comeIn(now - before, perSecond); due > 0; due--) send(pick(sums));
    if (now % 1 >= 0.9) for (let due = comeIn(now - before, (burst - 1) * ofFirst); due > 0; due--) send(0);
    before = now;
    await sleep(1);
  }
}

/** How many come in so many seconds, if each comes by itself: Poisson's distribution, by Knuth's method. */
function comeIn(seconds: number, perSecond: number): number {
  const limit = Math.exp(-seconds * perSecond);
  let count = -1;
  for (let product = 1; product > limit; product *= Math.random()) count += 1;
  return count;
}

export function pick(sums: readonly number[]): number {
  const at = Math.random();
  return Math.max(
    0,
    sums.findIndex((sum) => sum >= at),
  );
}

export function runningSums(shares: readonly number[]): number[] {
  let sum = 0;
  return shares.map((share) => {
    sum += share;
    return sum;
  });
}
