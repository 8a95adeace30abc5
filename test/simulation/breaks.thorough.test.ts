import { describe, expect, test } from 'vitest';
import { emptyDatabase } from '../support/redis-database.ts';
import { BREAKS } from './breaks.ts';
import { planOf } from './plan.ts';
import { run } from './run.ts';
import { firstSeedWith, STEPS } from './seeds.ts';
import { shortest } from './shortest.ts';

const { redis } = await emptyDatabase();

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
