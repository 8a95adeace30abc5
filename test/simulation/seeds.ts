import type { Redis } from 'ioredis';
import { BREAKS } from './breaks.ts';
import type { Invariant, Violation } from './invariants.ts';
import { planOf } from './plan.ts';
import { type Options, run } from './run.ts';

export const QUICK_SEEDS = 50;
export const STEPS = 40;

export interface Summary {
  readonly seeds: number;
  readonly decisions: number;
  readonly local: number;
  readonly faults: number;
  readonly virtualMs: number;
  readonly violations: readonly (Violation & { readonly seed: number })[];
}

export async function simulateSeeds(options: Options, seeds = QUICK_SEEDS): Promise<Summary> {
  const summary = { seeds, decisions: 0, local: 0, faults: 0, virtualMs: 0 };
  const violations: (Violation & { seed: number })[] = [];
  for (let seed = 1; seed <= seeds; seed++) {
    const result = await run(planOf(seed, STEPS), options);
    for (const count of ['decisions', 'local', 'faults', 'virtualMs'] as const) summary[count] += result[count];
    if (result.violation !== undefined) violations.push({ ...result.violation, seed });
  }
  return { ...summary, violations };
}

/** The first of the quick seeds that violates the invariant. */
export async function firstSeed(invariant: Invariant | undefined, options: Options): Promise<number | undefined> {
  for (let seed = 1; seed <= QUICK_SEEDS; seed++) {
    const { violation } = await run(planOf(seed, STEPS), options);
    if (violation !== undefined && violation.invariant === invariant) return seed;
  }
  return undefined;
}

/** The first of the quick seeds that detects a deliberate break. */
export const firstSeedWith = (broken: keyof typeof BREAKS, redis: Redis): Promise<number | undefined> =>
  firstSeed(BREAKS[broken]?.finds, { redis, broken: BREAKS[broken] });
