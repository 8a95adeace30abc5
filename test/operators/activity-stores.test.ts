import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { type Stack, startStack } from '../support/stack.ts';

const { url: redisUrl, redis } = await emptyDatabase();
const withRedis = { REDIS_URL: redisUrl, REDIS_TIMEOUT_MS: '5000' };

async function freshStack(): Promise<Stack> {
  await redis.flushdb();
  return await startStack(withRedis);
}

test('a key and its audit entry are stored in the same step', async () => {
  const stack = await freshStack();
  await stack.issueKey();
  const reader = new Redis(redisUrl);
  cleanUp(() => reader.disconnect());
  const issuing = Promise.all(Array.from({ length: 100 }, () => stack.issueKey()));
  const seen = new Set<number>();
  const differences = new Set<number>();
  while (seen.size < 3 || !seen.has(101)) {
    const [[, keys], [, entries]] = (await reader.multi().keys('gateway:key:*').xlen('gateway:activity').exec()) as [
      [null, string[]],
      [null, number],
    ];
    seen.add(entries);
    differences.add(keys.length - entries);
  }
  await issuing;
  expect([...differences]).toEqual([0]);
});

test("a change is made even if the audit log is of another type in Redis, and the gateway's log has its entry", async () => {
  const stack = await freshStack();
  const id = idOf(await stack.issueKey());
  await redis.del('gateway:activity');
  await redis.set('gateway:activity', 'spoilt');
  expect((await stack.admin('PATCH', `/keys/${id}`, { disabled: true, author: 'ada' })).status).toBe(200);
  expect((await stack.admin('GET', `/keys/${id}`)).json).toMatchObject({ state: 'disabled' });
  expect(stack.log.filter(({ msg }) => msg === 'a change is in force, but the audit log lacks it')).toMatchObject([
    { level: 50, reason: expect.stringContaining('WRONGTYPE'), activity: { actor: 'ada', target: id } },
  ]);
  expect((await stack.admin('GET', '/activity')).status).toBe(503);
});

test('an audit entry of a value in the plan table is shortened and has no secrets', async () => {
  const stack = await freshStack();
  const key = await stack.issueKey();
  await sleep(600);
  await redis.hset('gateway:plans', 'free.minute', `${key} ${'9'.repeat(100_000)}`);
  const newest = async () => (await activityOf(stack))[0]?.changes[0]?.to ?? '';
  await expect.poll(newest).toMatch(/^as_\w{12}_… 9+$/);
  expect((await newest()).length).toBeLessThan(100);
});

test('plan fields written by a restore are recorded with its actor, not as an edit by hand', async () => {
  const stack = await freshStack();
  await redis.hdel('gateway:plans', 'pro.day');
  const page = { plans: { 'pro.day': '12345' } };
  expect((await stack.admin('POST', '/restore?author=ada&reason=lost', page)).status).toBe(200);
  // Long enough for several reads of the table.
  await sleep(600);
  const restored = (await activityOf(stack)).filter(({ changes }) => changes.some(({ to }) => to === '12345'));
  expect(restored).toMatchObject([{ actor: 'ada', reason: 'lost', action: 'plan.change', target: 'pro', via: 'api' }]);
});

test('audit entries that were made unreadable by hand are left out', async () => {
  const stack = await freshStack();
  await redis.xadd('gateway:activity', '*', 'actor', 'me');
  await redis.xadd('gateway:activity', '*', 'actor', 'me', 'target', 'x', 'changes', '{');
  await stack.issueKey();
  expect(await activityOf(stack)).toMatchObject([{ action: 'key.create' }]);
});
