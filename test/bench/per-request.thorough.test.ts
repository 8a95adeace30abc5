import { expect, test } from 'vitest';
import { countPerRequest } from './per-request.ts';
import { setStage } from './setup/stage.ts';

// Facts of one admitted GET, not times: they are the same on every machine.
test('an admitted request awaits only its decision: no step before or after it creates a promise', async () => {
  const stage = await setStage();
  const [gateway] = await countPerRequest(stage);
  // handle, the decision, its await, ioredis' command, and two that continue it; some more are those of timers.
  expect(gateway?.promises).toBeLessThan(7);
  expect(gateway?.files).toBeLessThanOrEqual(48);
}, 120_000);
