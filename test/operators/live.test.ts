import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { ctl } from '../support/ctl.ts';
import type { Answer } from '../support/http.ts';
import { ask, dayLeft, onRedis } from '../support/operators.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { type Stack, startStack } from '../support/stack.ts';
import { TIMED } from '../support/timed.ts';

/** An operator's change takes effect on every gateway within a second. Half a second more allows for a busy machine. */
const LIMIT_MS = 1_500;

const { url, redis } = await emptyDatabase();
const stacks = await Promise.all(Array.from({ length: 4 }, () => startStack(onRedis(url))));
const [first] = stacks as [Stack, ...Stack[]];
// The keys that a test polls with must not be banned.
for (const plan of ['free', 'pro']) await first.admin('PATCH', `/plans/${plan}`, { ban_after: 1_000_000 });

/** The milliseconds until every gateway returns the expected answer for the key, and keeps returning it. */
async function spread(key: string, isThere: (answer: Answer) => boolean): Promise<number> {
  const startedAt = performance.now();
  const reached = await Promise.all(
    stacks.map(async (stack) => {
      while (!isThere(await ask(stack, key))) {
        if (performance.now() - startedAt > 10_000) throw new Error('The expected answer was not received.');
        // Without this pause, the gateways in this process would get no time for anything else.
        await sleep(20);
      }
      return performance.now() - startedAt;
    }),
  );
  for (const stack of stacks) expect(isThere(await ask(stack, key))).toBe(true);
  return Math.max(...reached);
}

function print(what: string, ms: number): void {
  process.stdout.write(`  ${what}: in force on four gateways after ${ms.toFixed(0)} ms\n`);
  expect(ms).toBeLessThan(LIMIT_MS);
}

const hasLimit = (limit: number) => (answer: Answer) => answer.headers['x-ratelimit-limit'] === String(limit);

// Incremented before each edit, so that even a retry sets a value that is not yet in force anywhere.
let limit = 5_000;

test.for([
  ['HSET by hand', (minute: number) => redis.hset('gateway:plans', 'pro.minute', minute)],
  ['PATCH /plans/pro', (minute: number) => first.admin('PATCH', '/plans/pro', { minute })],
  ['ctl plans set', (minute: number) => ctl(first, 'plans', 'set', 'pro', '--minute', String(minute))],
] as const)('a plan edit by %s takes effect everywhere within a second', TIMED, async ([what, edit]) => {
  const key = await first.issueKey({ plan: 'pro' });
  const answer = (await edit(++limit)) as { status?: number; code?: number };
  if (answer.status !== undefined) expect(hasLimit(limit)(await ask(first, key))).toBe(true);
  if (answer.code !== undefined) expect(answer.code).toBe(0);
  print(what, await spread(key, hasLimit(limit)));
});

test('a rollback takes effect everywhere within a second', TIMED, async () => {
  const key = await first.issueKey({ plan: 'pro' });
  await first.admin('PATCH', '/plans/pro', { minute: 6_000 });
  await spread(key, hasLimit(6_000));
  await first.admin('POST', '/plans/rollback', {});
  print('rollback', await spread(key, (answer) => !hasLimit(6_000)(answer)));
});

test('an edit to a plan refunds no tokens on any gateway', async () => {
  const key = await first.issueKey({ plan: 'pro' });
  for (let sent = 0; sent < 20; sent++) await ask(first, key);
  const before = dayLeft(await ask(first, key));
  await redis.hset('gateway:plans', 'pro.day', '9000');
  await spread(key, (answer) => /"day";q=9000;/.test(String(answer.headers['ratelimit-policy'])));
  const after = dayLeft(await ask(first, key));
  expect(after).toBeLessThan(9_000);
  await redis.hset('gateway:plans', 'pro.day', '10000');
  await spread(key, (answer) => /"day";q=10000;/.test(String(answer.headers['ratelimit-policy'])));
  expect(dayLeft(await ask(first, key))).toBeLessThan(Math.min(before, 9_000));
});

test('after a limit is raised, a refused client is admitted within the new refill time', TIMED, async () => {
  await first.admin('PATCH', '/plans/free', { minute: 1 });
  const key = await first.issueKey({ plan: 'free' });
  await spread(key, hasLimit(1));
  await spread(key, ({ status }) => status === 429);
  const refused = await ask(first, key);
  expect(Number(refused.headers['retry-after'])).toBeGreaterThan(30);
  // High enough that there is always a token for the next request.
  await redis.hset('gateway:plans', 'free.minute', '600000');
  print('a refused client freed by HSET', await spread(key, ({ status }) => status === 200));
});

test('issuing, changing, disabling, rotating or revoking a key takes effect at once on every gateway', async () => {
  const old = await first.issueKey({ plan: 'pro' });
  const everywhere = async (key: string, isSo: (answer: Answer) => boolean) => {
    for (const stack of stacks) expect(isSo(await ask(stack, key))).toBe(true);
  };
  const has = (status: number) => (answer: Answer) => answer.status === status;
  const path = `/keys/${idOf(old)}`;
  await everywhere(old, has(200));
  await first.admin('PATCH', path, { plan: 'business', minute: 41 });
  await everywhere(old, hasLimit(41));
  await first.admin('PATCH', path, { disabled: true });
  await everywhere(old, has(401));
  await first.admin('PATCH', path, { disabled: false, minute: 1_000 });
  await everywhere(old, has(200));
  const { key } = (await first.admin('POST', `${path}/rotate`, { graceSeconds: 0 })).json as { key: string };
  await everywhere(old, has(401));
  await everywhere(key, has(200));
  await first.admin('DELETE', path);
  await everywhere(key, has(401));
});

test('a ban takes effect at once on every gateway, and lifting it within a second', TIMED, async () => {
  const key = await first.issueKey({ plan: 'pro' });
  for (const stack of stacks) await ask(stack, key);
  await first.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'test' });
  for (const stack of stacks) expect((await ask(stack, key)).json).toMatchObject({ code: 'key_banned' });
  await first.admin('DELETE', `/keys/${idOf(key)}/ban`);
  print('a ban lifted', await spread(key, ({ status }) => status === 200));
});

test(
  'a reset takes effect at once on the gateway that receives it, and on every gateway within a second',
  TIMED,
  async () => {
    const key = await first.issueKey({ plan: 'pro', minute: 60, day: 60 });
    while ((await ask(first, key)).status === 200);
    await first.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'test' });
    for (const stack of stacks) expect((await ask(stack, key)).json).toMatchObject({ code: 'key_banned' });
    expect((await first.admin('POST', `/keys/${idOf(key)}/reset`, {})).status).toBe(200);
    expect(await ask(first, key)).toMatchObject({ status: 200, headers: { 'x-ratelimit-remaining': '59' } });
    print('a reset', await spread(key, ({ status }) => status === 200));
  },
);
