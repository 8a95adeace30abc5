import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startDeadline } from '../../gateway/limiter/breaker.ts';

function block(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end; );
}

test('a stall of the event loop is not a missed deadline, and data that came meanwhile is read first', async () => {
  let missed = 0;
  const end = startDeadline(500, () => missed++);
  block(1_000);
  await sleep(50);
  end();
  await sleep(600);
  expect(missed).toBe(0);
});

test('each missed deadline is reported with its start time', async () => {
  const told: number[] = [];
  const begun = performance.now();
  const end = startDeadline(50, (since) => told.push(since - begun));
  await expect.poll(() => told.length).toBeGreaterThanOrEqual(3);
  end();
  const count = told.length;
  await sleep(200);
  expect(told.length).toBe(count);
  expect(told[0]).toBeLessThan(5);
  for (const at of [1, 2]) expect((told[at] as number) - (told[at - 1] as number)).toBeGreaterThanOrEqual(49);
});
