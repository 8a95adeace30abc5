import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startDeadline } from '../../gateway/limiter/outage.ts';

function block(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end; );
}

test('a stall of the event loop is not a missed deadline, and data that arrived during the stall is read first', async () => {
  let missed = 0;
  const end = startDeadline(500, () => missed++);
  block(1_000);
  await sleep(50);
  end();
  await sleep(600);
  expect(missed).toBe(0);
});

test('each further missed deadline is reported until the call ends', async () => {
  const calls: number[] = [];
  const begun = performance.now();
  const end = startDeadline(50, () => calls.push(performance.now() - begun));
  await expect.poll(() => calls.length).toBeGreaterThanOrEqual(3);
  end();
  const count = calls.length;
  await sleep(200);
  expect(calls.length).toBe(count);
  // A timer may be early by a millisecond.
  for (const at of [0, 1, 2]) expect(calls[at]).toBeGreaterThanOrEqual(50 * (at + 1) - 1);
});
