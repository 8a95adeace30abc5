import { describe, expect, test } from 'vitest';
import { emptyDatabase } from '../support/redis-database.ts';
import { thoroughly } from '../support/thorough.ts';
import { BREAKS } from './breaks.ts';
import { planOf } from './plan.ts';
import { run } from './run.ts';
import { firstSeedWith, QUICK_SEEDS, STEPS, simulateSeeds } from './seeds.ts';
import { shortest } from './shortest.ts';

const { redis } = await emptyDatabase();

const SEEDS = thoroughly(150, QUICK_SEEDS);

test(`${SEEDS} simulated seeds violate no invariant`, { timeout: 600_000 }, async () => {
  const { violations, local } = await simulateSeeds({ redis }, SEEDS);
  expect(violations).toEqual([]);
  // The faults must cause enough local decisions.
  expect(local).toBeGreaterThan(10 * SEEDS);
});

test('a seed always produces the same history', async () => {
  const [first, again, other] = [7, 7, 8].map((seed) => () => run(planOf(seed, STEPS), { redis }));
  const { digest } = await first!();
  expect((await again!()).digest).toBe(digest);
  expect((await other!()).digest).not.toBe(digest);
});

describe('the quick seeds detect the deliberate break', () => {
  test.for(Object.keys(BREAKS))('%s', async (name) => {
    expect(await firstSeedWith(name, redis)).toBeDefined();
  });
});

test('a failing seed is reduced to a short history', async () => {
  const name = 'a gateway does not apply its own changes';
  const options = { redis, broken: BREAKS[name] };
  const plan = planOf((await firstSeedWith(name, redis)) ?? 0, STEPS);
  const found = await shortest(plan, await run(plan, options), (shorter) => run(shorter, options));
  expect(found.result.violation?.invariant).toBe('binds here');
  expect(found.plan.steps.length).toBeLessThan(10);
});
