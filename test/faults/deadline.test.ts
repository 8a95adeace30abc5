import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startDeadline } from '../../gateway/limiter/outage.ts';
import { connect } from '../../gateway/stores/redis/connection.ts';
import { cleanUp } from '../support/clean-up.ts';
import { readableLog } from '../support/log.ts';
import { ownRedis } from '../support/redis-database.ts';

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

test('a stall of the event loop fails no command to Redis, but a Redis that does not answer does', async () => {
  const server = await ownRedis();
  const target = { mode: 'single', urls: [server.url], masterName: undefined, sentinelUsername: undefined } as const;
  const own = { credentials: () => ({ username: '', password: '' }), ca: undefined, timeoutMs: 200, startMs: 3_000 };
  const redis = await connect({ ...target, ...own }, readableLog().logger);
  cleanUp(() => redis.disconnect());
  for (let times = 0; times < 3; times++) {
    const answer = redis.hgetall('gateway:plans');
    block(300);
    expect(await answer).toEqual({});
  }
  server.pause();
  cleanUp(() => server.resume());
  const askedAt = performance.now();
  await expect(redis.hgetall('gateway:plans')).rejects.toThrow('Command timed out');
  expect(performance.now() - askedAt).toBeGreaterThanOrEqual(199);
});
