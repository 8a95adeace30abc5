import { expect, test } from 'vitest';
import { emptyDatabase } from '../support/redis-database.ts';
import { simulateSeeds } from './seeds.ts';

const SEEDS = 500;

test(`${SEEDS} simulated seeds violate no invariant`, { timeout: 600_000 }, async () => {
  const { redis } = await emptyDatabase();
  const { violations, local } = await simulateSeeds({ redis }, SEEDS);
  expect(violations).toEqual([]);
  // The faults must cause enough local decisions.
  expect(local).toBeGreaterThan(10 * SEEDS);
});
