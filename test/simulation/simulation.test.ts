import { expect, test } from 'vitest';
import { emptyDatabase } from '../support/redis-database.ts';
import { thoroughly } from '../support/thorough.ts';
import { planOf } from './plan.ts';
import { run } from './run.ts';
import { QUICK_SEEDS, STEPS, simulateSeeds } from './seeds.ts';

const { redis } = await emptyDatabase();

const SEEDS = thoroughly(QUICK_SEEDS, 25);

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
