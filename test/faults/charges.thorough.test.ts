import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { type Fault, startFaultProxy } from '../support/fault-proxy.ts';
import { send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { ask } from '../support/paced-load.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { withModes } from '../support/redis-fault.ts';
import { createKey } from '../support/redis-keys.ts';
import { type Stack, startStack } from '../support/stack.ts';

const ROUNDS = 3;
/** A deadline that even a busy machine meets. */
const DEADLINE_MS = 1_000;

async function setUp() {
  const server = await ownRedis();
  const redis = connectionTo(server.url);
  const proxy = await startFaultProxy(server.url);
  const stack = await startStack({ REDIS_URL: proxy.url, REDIS_TIMEOUT_MS: String(DEADLINE_MS) });
  const limits = { minute: 1e6, day: 1e6 };
  const [key, probe] = [await createKey(redis, limits), await createKey(redis, limits)];
  const askWith = async (apiKey: string) => withModes([await ask(stack.gateway, apiKey)], stack.log)[0];
  const unknown = async () =>
    (await scrape(stack.adminUrl)).sum('gateway_local_admissions_total', { fate: 'unknown' }) ?? 0;
  return { redis, proxy, key, probe, askWith, unknown };
}

/** The ways in which the reply to a decision is lost, and whether the decision itself always reaches Redis. */
const losses: [name: string, fault: Fault, arrives: boolean][] = [
  ['arrives after the deadline', { kind: 'hold' }, true],
  // This fault may cut the reply to an earlier call, just before the decision is sent.
  ['is cut off', { kind: 'cut-reply', afterBytes: 5, to: 'evalsha' }, false],
  ['waits for the network to recover', { kind: 'black-hole' }, true],
];

test.for(losses)('a decision whose reply %s is charged once or counted as having an unknown outcome', async (loss) => {
  const [, fault, arrives] = loss;
  const { redis, proxy, key, probe, askWith, unknown } = await setUp();
  const isShared = async () => (await askWith(probe.apiKey))?.mode === 'shared';
  let sent = 0;
  for (let round = 0; round < ROUNDS; round++) {
    proxy.set({ kind: 'pass' });
    await expect.poll(isShared, { interval: 20 }).toBe(true);
    expect(await askWith(key.apiKey)).toMatchObject({ status: 200, mode: 'shared' });
    proxy.set(fault);
    expect(await askWith(key.apiKey)).toMatchObject({ status: 200, mode: 'local' });
    sent += 2;
  }
  proxy.set({ kind: 'pass' });
  await expect.poll(isShared, { interval: 20 }).toBe(true);
  // All earlier calls have arrived: a connection delivers in order, and a new one opens only once the old is closed.
  const admitted = async () => Number(await redis.hget(key.hash, 'admitted'));
  const least = async () => sent - (arrives ? 0 : await unknown());
  await expect.poll(async () => (await admitted()) >= (await least())).toBe(true);
  await sleep(500);
  expect(await admitted()).toBeGreaterThanOrEqual(await least());
  expect(await admitted()).toBeLessThanOrEqual(sent);
});

test('a gateway that was cut off from Redis does not undo a reset when it charges its decisions', async () => {
  const server = await ownRedis();
  const proxy = await startFaultProxy(server.url);
  const [one, other] = await Promise.all(
    [server.url, proxy.url].map((REDIS_URL) => startStack({ REDIS_URL, REDIS_TIMEOUT_MS: String(DEADLINE_MS) })),
  );
  if (one === undefined || other === undefined) throw new Error('A stack did not start.');
  const key = await one.issueKey({ minute: 60, day: 100 });
  const left = async ({ gateway }: Stack) => {
    const { status, headers } = await send(`${gateway}/v1/pets`, { key });
    return [status, Number(/"day";r=(\d+)/.exec(String(headers.ratelimit))?.[1])];
  };
  expect(await left(other)).toEqual([200, 99]);
  proxy.set({ kind: 'reset' });
  for (let sent = 0; sent < 20; sent++) expect(await left(other)).toEqual([200, 98 - sent]);
  for (let sent = 0; sent < 10; sent++) await left(one);
  // The gateway that is cut off cannot confirm the reset. After a few seconds, it is no longer waited for.
  await expect.poll(async () => (await one.admin('POST', `/keys/${idOf(key)}/reset`, {})).status).toBe(200);
  expect(await left(one)).toEqual([200, 99]);
  proxy.set({ kind: 'pass' });
  const admitted = async () => (await one.admin('GET', `/keys/${idOf(key)}`)).json;
  await expect.poll(admitted, { timeout: 10_000 }).toMatchObject({ admitted: 1 + 20 + 10 + 1 });
  // The other gateway may charge before it detects that Redis is back.
  await expect.poll(() => other.log.map(({ msg }) => msg)).toContain('decisions are shared again');
  expect(await left(one)).toEqual([200, 98]);
  expect(await left(other)).toEqual([200, 97]);
});

/** By how many tokens the store's minute level differs from the gateway's, and what becomes of it. */
const disagreements: [name: string, spent: number, inStore: number, status: number, least: number, most: number][] = [
  ['admits a request that Redis refuses, the token is charged', 1, 0, 200, -1, -0.1],
  ['refuses a request that Redis admits, the token is returned', 6, 3, 429, 3, 4],
];

test.for(disagreements)(
  'if a gateway %s when the late reply arrives',
  async ([, spent, inStore, status, least, most]) => {
    const { redis, proxy, askWith } = await setUp();
    const key = await createKey(redis, { minute: 6, day: 1_000 });
    for (let asked = 0; asked < spent; asked++) expect(await askWith(key.apiKey)).toMatchObject({ status: 200 });
    // Another gateway has taken or returned tokens.
    await redis.hset(key.hash, 'left', `${Date.now() / 1_000} ${inStore}/6 900/1000`);
    proxy.set({ kind: 'hold' });
    expect(await askWith(key.apiKey)).toMatchObject({ status, mode: 'local' });
    proxy.set({ kind: 'pass' });
    const level = async () => Number(/^\S+ (-?[\d.]+)/.exec((await redis.hget(key.hash, 'left')) ?? '')?.[1]);
    await expect.poll(level).toBeGreaterThanOrEqual(least);
    await expect.poll(level).toBeLessThan(most);
    // Nothing is charged or returned twice.
    await sleep(1_000);
    expect(await level()).toBeGreaterThanOrEqual(least);
    expect(await level()).toBeLessThan(most);
  },
);
