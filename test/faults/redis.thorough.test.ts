import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { type Answer, send } from '../support/http.ts';
import { eventuallyScraped } from '../support/metrics.ts';
import { type Answered, ask } from '../support/paced-load.ts';
import { connectionTo, emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { startRig, withModes } from '../support/redis-fault.ts';
import { createKey } from '../support/redis-keys.ts';
import { LOADING } from '../support/redis-outages.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

/** Tests decisions during a Redis outage. `redis-under-load` tests each kind of fault. */

const MINUTE = 60;

/** @param settings by default, a deadline that even a busy machine meets. Tests with a silent Redis pass `{}` */
async function setUp(settings: Record<string, string> = { REDIS_TIMEOUT_MS: '2000' }) {
  const server = await ownRedis({ dir: await temporaryFolder() });
  const redis = connectionTo(server.url, { retryStrategy: () => 50 });
  const stack = await startStack({ REDIS_URL: server.url, ...settings });
  return { server, redis, stack };
}

const request = (stack: Stack, key: string): Promise<Answer> => send(`${stack.gateway}/v1/pets`, { key });

async function ask60(stack: Stack, key: string): Promise<Answered[]> {
  const answers: Answered[] = [];
  while (answers.length < MINUTE) answers.push(await ask(stack.gateway, key));
  return answers;
}

const admittedOf = (answers: readonly { status: number }[]) => answers.filter(({ status }) => status === 200).length;

test('an intermittent outage and its end are logged once', async () => {
  const { redis, stack } = await setUp();
  const key = await stack.issueKey({ minute: 1_000_000 });
  await request(stack, key);
  const linesOf = (what: string) => stack.log.filter(({ msg }) => msg === what);
  for (let outage = 0; outage < 2; outage++) {
    await redis.config('SET', 'min-replicas-to-write', '1');
    await expect.poll(() => isShared(stack, key)).toBe(false);
    await redis.config('SET', 'min-replicas-to-write', '0');
    await expect.poll(() => isShared(stack, key), { interval: 20 }).toBe(true);
  }
  await expect.poll(() => linesOf('decisions are shared again').length).toBe(1);
  expect(linesOf('decisions are local')).toMatchObject([{ level: 50, reason: expect.stringContaining('NOREPLICAS') }]);
});

const linesAbout = ({ log }: Stack, what: string) => log.filter(({ msg }) => msg === what);
const reasonsIn = (stack: Stack) => linesAbout(stack, 'redis is unavailable').map(({ reason }) => reason);

test.for([
  ['refuses the password', ['requirepass', 'other'], ['requirepass', ''], /^(WRONGPASS|NOAUTH) /],
  ['accepts no more connections', ['maxclients', '1'], ['maxclients', '10000'], /max number of clients reached/],
] as const)(
  'a Redis that %s of a running gateway is logged with this reason, once',
  async ([, fault, cure, reason]) => {
    const { redis, stack } = await setUp();
    await redis.config('SET', ...fault);
    await redis.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await expect.poll(() => reasonsIn(stack)).toContainEqual(expect.stringMatching(reason));
    await sleep(1_000);
    expect(new Set(reasonsIn(stack)).size).toBe(reasonsIn(stack).length);
    expect(linesAbout(stack, 'redis is back')).toEqual([]);
    await redis.config('SET', ...cure);
    await expect.poll(() => linesAbout(stack, 'redis is back').length).toBe(1);
  },
);

test('a Redis that answers reads but no script is not logged as back until it runs scripts again', async () => {
  const { redis, stack } = await setUp({});
  const key = await stack.issueKey();
  await request(stack, key);
  await redis.client('PAUSE', 60_000, 'WRITE');
  await expect.poll(() => isShared(stack, key)).toBe(false);
  await expect.poll(() => reasonsIn(stack)).toEqual(['No answer in 500 ms.']);
  await sleep(3_000);
  expect(linesAbout(stack, 'redis is back')).toEqual([]);
  expect(reasonsIn(stack)).toEqual(['No answer in 500 ms.']);
  await redis.client('UNPAUSE');
  await expect.poll(() => linesAbout(stack, 'redis is back').length).toBe(1);
  await expect.poll(() => isShared(stack, key)).toBe(true);
});

test('local refusals are not strikes, and a running ban continues without Redis', async () => {
  const { server, redis, stack } = await setUp();
  const key = await stack.issueKey({ minute: MINUTE });
  await redis.hset('gateway:plans', {
    'free.ban_after': '5',
    'free.ban_grace_seconds': '0',
    'free.ban_seconds': '100',
  });
  await expect
    .poll(async () => ((await stack.admin('GET', '/plans')).json as { free: { ban_after: number } }).free.ban_after)
    .toBe(5);
  const banned = await stack.issueKey({ minute: 1 });
  const bannedAfter = performance.now();
  for (let sent = 0; sent < 8; sent++) await request(stack, banned);
  const bannedBefore = performance.now();
  await request(stack, key);
  await server.stop();
  for (let sent = 0; sent < 100; sent++) await request(stack, key);
  expect((await request(stack, key)).json).toMatchObject({ code: 'rate_limit_exceeded' });
  await sleep(1_100);
  const still = await request(stack, banned);
  expect(still.json).toMatchObject({ code: 'key_banned' });
  const [longest, shortest] = [bannedAfter, bannedBefore].map((at) => 100 - (performance.now() - at) / 1_000);
  expect(Number(still.headers['retry-after'])).toBeGreaterThan((longest as number) - 2);
  expect(Number(still.headers['retry-after'])).toBeLessThan((shortest as number) + 2);
});

test('without Redis, a key that an operator has just changed gets 503 with its own limits', async () => {
  const { server, stack } = await setUp();
  const key = await stack.issueKey({ minute: 77 });
  await request(stack, key);
  expect((await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'scrapes' })).status).toBe(200);
  await server.stop();
  const { status, headers } = await request(stack, key);
  expect([status, headers['x-ratelimit-limit'], headers['retry-after']]).toEqual([503, '77', '1']);
  expect(Number(headers['x-ratelimit-remaining'])).toBeGreaterThanOrEqual(76);
});

test('a flapping Redis grants one extra bucket in total, not one per outage', async () => {
  const { server, stack } = await setUp({});
  const [key, other] = [await stack.issueKey({ minute: MINUTE }), await stack.issueKey({ minute: 1_000_000 })];
  const begun = performance.now();
  const answers = [await ask(stack.gateway, key)];
  await request(stack, other);
  for (let outage = 0; outage < 4; outage++) {
    server.pause();
    answers.push(...(await ask60(stack, key)));
    server.resume();
    await expect.poll(() => isShared(stack, other), { interval: 20 }).toBe(true);
    answers.push(await ask(stack.gateway, key));
  }
  const locally = withModes(answers, stack.log).filter(({ mode }) => mode === 'local');
  expect(locally.length).toBeGreaterThan(3 * MINUTE);
  expect(admittedOf(locally)).toBeGreaterThan(MINUTE - 5);
  expect(admittedOf(locally)).toBeLessThanOrEqual(MINUTE + Math.ceil((performance.now() - begun) / 1_000));
});

test('requests within the limit during a Redis outage leave no debt', async () => {
  const { server, redis, stack } = await setUp({});
  const key = await stack.issueKey({ minute: MINUTE });
  await request(stack, key);
  server.pause();
  const answers = await ask60(stack, key);
  // Spends each token as soon as it is refilled, so that the bucket stays empty.
  for (const end = performance.now() + 6_000; performance.now() < end; await sleep(100))
    answers.push(await ask(stack.gateway, key));
  const admitted = admittedOf(answers);
  expect(admitted).toBeGreaterThan(MINUTE + 3);
  server.resume();
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_local_admissions_total')).toBe(admitted);
  const [, minute = ''] = (await redis.hget(`gateway:key:{${idOf(key)}}`, 'left'))?.split(' ') ?? [];
  expect(Number.parseFloat(minute)).toBeGreaterThan(-1);
  expect(Number.parseFloat(minute)).toBeLessThan(5);
});

async function isShared(stack: Stack, key: string): Promise<boolean> {
  const [answer] = withModes([await ask(stack.gateway, key)], stack.log);
  expect(answer?.status).not.toBe(503);
  return answer?.mode === 'shared';
}

test('a Redis that loads its data faster than it estimates is used immediately', async () => {
  const rig = await startRig();
  const stack = await startStack({ REDIS_URL: rig.proxy.url, REDIS_TIMEOUT_MS: '2000' });
  const { apiKey } = await createKey(rig.redis, { minute: 1_000_000 });
  expect(await isShared(stack, apiKey)).toBe(true);
  await LOADING.cause(rig);
  await sleep(1_500);
  expect(await isShared(stack, apiKey)).toBe(false);
  await LOADING.heal?.(rig);
  await expect.poll(() => isShared(stack, apiKey)).toBe(true);
});

test('a Redis that becomes a replica of an empty Redis does not cause a 401 for valid keys', async () => {
  const { redis, stack } = await setUp();
  const empty = await ownRedis({ dir: await temporaryFolder(), 'repl-diskless-sync-delay': '0' });
  const [seen, unseen] = [await stack.issueKey(), await stack.issueKey()];
  await request(stack, seen);
  await redis.replicaof('127.0.0.1', new URL(empty.url).port);
  await expect.poll(() => redis.dbsize()).toBe(0);
  for (let sent = 0; sent < 5; sent++) {
    // A gateway no longer trusts its data about a key when the last entry that it read from the audit log is gone.
    expect([200, 503]).toContain((await request(stack, seen)).status);
    expect((await request(stack, unseen)).status).toBe(503);
    await sleep(150);
  }
});

test('a gateway that loses Redis does not serve keys that another gateway has banned once or twice', async () => {
  const { url } = await emptyDatabase();
  const proxy = await startFaultProxy(url);
  const here = await startStack({ REDIS_URL: url });
  const there = await startStack({ REDIS_URL: proxy.url });
  await here.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
  const [once, twice] = [await here.issueKey({ minute: 5 }), await here.issueKey({ minute: 5 })];
  const other = await here.issueKey();
  const ask = async (gateway: string, key: string) => (await send(`${gateway}/v1/pets`, { key })).status;
  const ban = async (key: string) => {
    const last = async () => (await send(`${here.gateway}/v1/pets`, { key })).json;
    await expect.poll(last, { interval: 1 }).toMatchObject({ code: 'key_banned' });
    await sleep(1_000);
  };
  await ban(twice);
  expect((await here.admin('POST', `/keys/${idOf(twice)}/reset`, {})).status).toBe(200);
  for (const key of [once, twice, other]) expect(await ask(there.gateway, key)).toBe(200);
  await ban(once);
  await ban(twice);
  proxy.set({ kind: 'reset' });
  expect(await ask(there.gateway, other)).toBe(200);
  for (const key of [once, twice])
    for (let asked = 0; asked < 10; asked++) expect([429, 503]).toContain(await ask(there.gateway, key));
});

test('a gateway that loses Redis still answers 429 to a key that it has banned, although another gateway saw the ban', async () => {
  const { url } = await emptyDatabase();
  const proxy = await startFaultProxy(url);
  const here = await startStack({ REDIS_URL: proxy.url });
  const there = await startStack({ REDIS_URL: url });
  await here.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
  const [key, other] = [await here.issueKey({ minute: 5 }), await here.issueKey()];
  const codeAt = async ({ gateway }: Stack) =>
    ((await send(`${gateway}/v1/pets`, { key })).json as { code?: string }).code;
  await expect.poll(() => codeAt(here), { interval: 1 }).toBe('key_banned');
  expect(await codeAt(there)).toBe('key_banned');
  expect((await send(`${here.gateway}/v1/pets`, { key: other })).status).toBe(200);
  // By now, each gateway has read what the other one has written about the ban.
  await sleep(1_500);
  proxy.set({ kind: 'reset' });
  expect((await send(`${here.gateway}/v1/pets`, { key: other })).status).toBe(200);
  expect(await codeAt(here)).toBe('key_banned');
});
