import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startDeadline } from '../../gateway/limiter/outage.ts';

test('each further missed deadline is reported until the call ends', async () => {
  const calls: number[] = [];
  const begun = performance.now();
  const end = startDeadline(50, () => calls.push(performance.now() - begun));
  await expect.poll(() => calls.length).toBeGreaterThanOrEqual(3);
  end();
  const count = calls.length;
  await sleep(200);
  expect(calls.length).toBe(count);
  for (const at of [0, 1, 2]) expect(calls[at]).toBeGreaterThanOrEqual(50 * (at + 1) - 1);
});
