import http from 'node:http';
import type { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { createApiKey, credentialOf } from '../../gateway/limiter/credential.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { redisUnderTest } from '../support/limiters.ts';
import { connectionTo, emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';
import { startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

/** How often each command was called since `CONFIG RESETSTAT`, including calls by scripts. */
async function callsOf(redis: Redis, ...commands: string[]): Promise<number> {
  const stats = await redis.info('commandstats');
  const counts = [...stats.matchAll(/^cmdstat_(\w+):calls=(\d+)/gm)];
  return counts.reduce((sum, [, name, count]) => sum + (commands.includes(name ?? '') ? Number(count) : 0), 0);
}

const scriptCalls = (redis: Redis): Promise<number> => callsOf(redis, 'evalsha', 'eval');

async function setUp() {
  const server = await ownRedis();
  const redis = connectionTo(server.url);
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '5000' });
  const key = await stack.issueKey({ plan: 'enterprise', minute: 1_000_000, day: 3_000 });
  await send(`${stack.gateway}/v1/pets`, { key });
  await redis.config('RESETSTAT');
  return { redis, stack, key };
}

test('requests with one key on 32 connections share script calls, and each call makes one write', async () => {
  const { redis, stack, key } = await setUp();
  const agent = new http.Agent({ keepAlive: true, maxSockets: 32 });
  cleanUp(() => agent.destroy());
  const count = thoroughly(2_000, 600);
  const answers = await Promise.all(
    Array.from({ length: count }, () => send(`${stack.gateway}/v1/store/orders`, { key, agent })),
  );
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  const remaining = new Set(answers.map(({ headers }) => headers.ratelimit?.toString().match(/"day";r=(\d+)/)?.[1]));
  expect(remaining.size).toBe(count);
  const calls = await scriptCalls(redis);
  expect(calls).toBeGreaterThan(0);
  expect(calls).toBeLessThan(count / 2);
  // The first call of a new minute also records the usage so far.
  const writes = await callsOf(redis, 'hset');
  expect([writes >= calls, writes <= calls + 2]).toEqual([true, true]);
  process.stdout.write(
    `${count} requests on 32 connections: ${calls} script calls, ${(count / calls).toFixed(1)} decisions a call\n`,
  );
});

test('a key with a wrong checksum causes no call to Redis', async () => {
  const { redis, stack, key } = await setUp();
  for (let sent = 0; sent < 20; sent++) {
    const wrong = `${key.slice(0, -1)}${key.endsWith('a') ? 'b' : 'a'}`;
    expect((await send(`${stack.gateway}/v1/pets`, { key: wrong })).status).toBe(401);
  }
  expect(await scriptCalls(redis)).toBe(0);
});

test('made-up keys with a valid checksum leave nothing in Redis', async () => {
  const { redis, stack } = await setUp();
  const before = await redis.dbsize();
  for (let sent = 0; sent < 50; sent++) await send(`${stack.gateway}/v1/pets`, { key: createApiKey().apiKey });
  expect(await scriptCalls(redis)).toBeGreaterThan(0);
  expect(await redis.dbsize()).toBe(before);
});

test('a banned client that keeps sending causes one script call a second', async () => {
  const { redis, stack } = await setUp();
  await redis.hset('gateway:plans', { 'free.minute': '1', 'free.ban_after': '1', 'free.ban_grace_seconds': '0' });
  await expect
    .poll(async () => ((await stack.admin('GET', '/plans')).json as { free: object }).free)
    .toMatchObject({ minute: 1, ban_after: 1, ban_grace_seconds: 0 });
  const key = await stack.issueKey();
  for (let sent = 0; sent < 3; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  // The ban is reported to other gateways only once.
  await expect.poll(() => redis.xlen('gateway:bans')).toBe(1);
  await redis.config('RESETSTAT');
  const started = performance.now();
  let sent = 0;
  for (; performance.now() - started < 2_500; sent++) {
    const answer = await send(`${stack.gateway}/v1/pets`, { key });
    expect(answer.json).toMatchObject({ code: 'key_banned' });
    expect(Math.abs(Number(answer.headers['retry-after']) - 300)).toBeLessThan(5);
  }
  expect(sent).toBeGreaterThan(50);
  expect(await scriptCalls(redis)).toBeLessThanOrEqual(3);
});

const { url } = await emptyDatabase();

test('concurrent requests with the same key are decided in order, even if several calls are needed', async () => {
  const under = await redisUnderTest(url);
  const credential = await under.createKey({ plan: 'enterprise', minute: 500, day: 1_000 });
  const decisions = await Promise.all(Array.from({ length: 600 }, () => under.limiter.decide(credential)));
  const left = decisions.map((decision) => (decision as Decision).buckets[0]?.tokens);
  expect(left).toEqual(Array.from({ length: 600 }, (_, at) => Math.max(0, 499 - at)));
  expect(decisions.filter(({ outcome }) => outcome === 'admitted')).toHaveLength(500);
  expect(await under.keys.get(credential.id)).toMatchObject({ admitted: 500, refused: 100 });
});

test('a request with a restricted secret is charged once, although it is sent to Redis again with its scope and address', async () => {
  const under = await redisUnderTest(url);
  const digest = '1'.repeat(64);
  const { id } = await under.createKey({ secrets: [secretWith(digest, { scope: ['read'] })] });
  const credential = credentialOf(id, digest, { scope: 'read', address: '127.0.0.1' });
  expect(await under.limiter.decide(credential)).toMatchObject({ outcome: 'admitted', bounds: { scope: ['read'] } });
  expect(await under.keys.get(id)).toMatchObject({ admitted: 1 });
});
