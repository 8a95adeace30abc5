import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { type Answer, send } from '../support/http.ts';
import { startRedisServer } from '../support/redis.ts';
import { type Stack, startStack } from '../support/stack.ts';

const MINUTE = 60;

async function setUp() {
  const server = await startRedisServer();
  cleanUp(server.stop);
  const redis = new Redis(server.url, { retryStrategy: () => 50 });
  redis.on('error', () => {});
  cleanUp(() => redis.disconnect());
  const stack = await startStack({ REDIS_URL: server.url });
  const key = await stack.issueKey({ minute: MINUTE });
  return { server, redis, stack, key };
}

/** Requests one after the other for a while, with the time that each took. */
async function stream(stack: Stack, key: string, durationMs: number): Promise<(Answer & { ms: number })[]> {
  const answers: (Answer & { ms: number })[] = [];
  for (const end = performance.now() + durationMs; performance.now() < end; await sleep(10)) {
    const before = performance.now();
    answers.push({ ...(await send(`${stack.gateway}/v1/pets`, { key })), ms: performance.now() - before });
  }
  return answers;
}

const modes = (stack: Stack) => stack.log.filter(({ msg }) => msg === 'request').map(({ mode }) => mode ?? 'shared');

const faults: [
  name: string,
  cause: (redis: Redis, server: { pause(): void; stop(): Promise<void> }) => unknown,
  heal: (redis: Redis, server: { resume(): void; restart(): Promise<void> }) => unknown,
][] = [
  ['killed', (_, server) => server.stop(), (_, server) => server.restart()],
  ['stopped in its tracks', (_, server) => server.pause(), (_, server) => server.resume()],
  [
    'a replica that takes no writes',
    (redis) => redis.replicaof('127.0.0.1', 1),
    (redis) => redis.replicaof('NO', 'ONE'),
  ],
  ['out of memory', (redis) => redis.config('SET', 'maxmemory', '1'), (redis) => redis.config('SET', 'maxmemory', '0')],
  [
    'without enough replicas',
    (redis) => redis.config('SET', 'min-replicas-to-write', '1'),
    (redis) => redis.config('SET', 'min-replicas-to-write', '0'),
  ],
  ['paused', (redis) => redis.client('PAUSE', 1_500), () => sleep(700)],
];

test.for(faults)(
  'a Redis that is %s: keys seen before go on, limited as before; others are told to come back',
  async ([, cause, heal]) => {
    const { server, redis, stack, key } = await setUp();
    const unseen = await stack.issueKey();
    for (let sent = 0; sent < 20; sent++) await send(`${stack.gateway}/v1/pets`, { key });
    await cause(redis, server);
    const during = await stream(stack, key, 800);
    expect(during.every(({ status }) => status === 200 || status === 429)).toBe(true);
    const admitted = during.filter(({ status }) => status === 200).length;
    expect(admitted).toBeGreaterThan(30);
    expect(admitted).toBeLessThanOrEqual(MINUTE - 20 + 3);
    expect(during.every(({ headers }) => headers['x-ratelimit-limit'] === String(MINUTE))).toBe(true);
    expect(Math.max(...during.map(({ ms }) => ms))).toBeLessThan(150);
    expect(during.at(-1)?.ms).toBeLessThan(50);
    expect(modes(stack).at(-1)).toBe('local');

    const stranger = await send(`${stack.gateway}/v1/pets`, { key: unseen });
    expect([stranger.status, stranger.headers['retry-after']]).toEqual([503, '1']);
    expect((await send(`${stack.gateway}/v1/pets`)).status).toBe(401);

    await heal(redis, server);
    const healedAt = performance.now();
    await expect
      .poll(async () => (await send(`${stack.gateway}/v1/pets`, { key: unseen })).status, {
        timeout: 3_000,
        interval: 20,
      })
      .not.toBe(503);
    expect(performance.now() - healedAt).toBeLessThan(1_000);
    expect(stack.log.filter(({ msg }) => msg === 'decisions are local')).toHaveLength(1);
  },
);

test('local refusals are no strikes, and a ban that runs goes on without Redis', async () => {
  const { server, redis, stack, key } = await setUp();
  await redis.hset('gateway:plans', { 'free.ban_after': '5', 'free.ban_seconds': '100' });
  await expect
    .poll(async () => ((await stack.admin('GET', '/plans')).json as { free: { ban_after: number } }).free.ban_after)
    .toBe(5);
  const banned = await stack.issueKey({ minute: 1 });
  for (let sent = 0; sent < 8; sent++) await send(`${stack.gateway}/v1/pets`, { key: banned });
  await send(`${stack.gateway}/v1/pets`, { key });
  await server.stop();
  for (let sent = 0; sent < 100; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  expect((await send(`${stack.gateway}/v1/pets`, { key })).json).toMatchObject({ code: 'rate_limit_exceeded' });
  await sleep(1_100);
  const still = await send(`${stack.gateway}/v1/pets`, { key: banned });
  expect(still.json).toMatchObject({ code: 'key_banned' });
  expect(Math.abs(Number(still.headers['retry-after']) - 98)).toBeLessThan(4);
});

test('scripts flushed over and over cost nobody a request', async () => {
  const { redis, stack, key } = await setUp();
  const flushing = setInterval(() => void redis.script('FLUSH'), 50);
  const answers = await stream(stack, key, 800);
  clearInterval(flushing);
  expect(answers.every(({ status }) => status === 200 || status === 429)).toBe(true);
  expect(new Set(modes(stack))).toEqual(new Set(['shared']));
});

test('a key whose data turned into something else goes on from what was last known of it', async () => {
  const { redis, stack, key } = await setUp();
  await send(`${stack.gateway}/v1/pets`, { key });
  const name = `gateway:key:{${key.slice(3, 15)}}`;
  await redis.del(name);
  await redis.set(name, 'text');
  const answer = await send(`${stack.gateway}/v1/pets`, { key });
  expect([answer.status, answer.headers['x-ratelimit-remaining']]).toEqual([200, '58']);
  expect(modes(stack).at(-1)).toBe('local');
});
