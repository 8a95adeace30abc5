import { expect, test } from 'vitest';
import { emptyDatabase } from '../support/redis-database.ts';
import { NOT_YET, simulateSeeds } from './seeds.ts';

/** Fewer steps than the quick seeds have, so that so many seeds take minutes. */
const [SEEDS, STEPS] = [2_000, 25];

test(`${SEEDS} seeds break no promise`, { timeout: 900_000 }, async () => {
  const { redis } = await emptyDatabase();
  const { violations } = await simulateSeeds({ redis, off: NOT_YET }, SEEDS, STEPS);
  expect(violations).toEqual([]);
});
