import type { Redis } from 'ioredis';
import { BREAKS } from './breaks.ts';
import type { Violation } from './invariants.ts';
import { planOf } from './plan.ts';
import { type Options, run } from './run.ts';

export const QUICK_SEEDS = 50;
export const STEPS = 40;

/** Runs the seeds 1 to `seeds`. @returns the sums of their counts, and their violations */
export async function simulateSeeds(options: Options, seeds = QUICK_SEEDS) {
  const summary = { seeds, decisions: 0, local: 0, faults: 0, virtualMs: 0 };
  const violations: (Violation & { seed: number })[] = [];
  for (let seed = 1; seed <= seeds; seed++) {
    const result = await run(planOf(seed, STEPS), options);
    for (const count of ['decisions', 'local', 'faults', 'virtualMs'] as const) summary[count] += result[count];
    if (result.violation !== undefined) violations.push({ ...result.violation, seed });
  }
  return { ...summary, violations };
}

/** The first of the quick seeds that detects a deliberate break. */
export async function firstSeedWith(name: keyof typeof BREAKS, redis: Redis): Promise<number | undefined> {
  const broken = BREAKS[name];
  for (let seed = 1; seed <= QUICK_SEEDS; seed++) {
    const { violation } = await run(planOf(seed, STEPS), { redis, broken });
    if (violation !== undefined && violation.invariant === broken?.finds) return seed;
  }
  return undefined;
}
