import { expect, test } from 'vitest';
import { countPerRequest } from './per-request.ts';
import { setStage } from './setup/stage.ts';

// Counts of one admitted GET, which are the same on every machine, unlike times.
test('an admitted request awaits only its decision: no step before or after it creates a promise', async () => {
  const stage = await setStage();
  const [gateway] = await countPerRequest(stage);
  // Those of handle, the decision, its await, ioredis' command, and two that continue it. Timers add a few.
  expect(gateway?.promises).toBeLessThan(7);
  expect(gateway?.files).toBeLessThanOrEqual(25);
}, 120_000);
