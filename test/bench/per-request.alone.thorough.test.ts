import { expect, test } from 'vitest';
import { countPerRequest } from './per-request.ts';
import { setStage } from './setup/stage.ts';

// Unlike times, the counts of one admitted GET are the same on every machine.
test('an admitted request creates promises only for its decision, not in the steps before or after it', async () => {
  const stage = await setStage();
  const [gateway] = await countPerRequest(stage);
  // One promise each for `handle`, the decision, its await and ioredis' command, and two for continuations. Timers add
  // a few.
  expect(gateway?.promises).toBeLessThan(7);
  expect(gateway?.files).toBeLessThanOrEqual(25);
}, 120_000);
