import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { Redis } from 'ioredis';
import { describe, expect, test } from 'vitest';
import type { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { type Change, NotMade, Unknown } from '../../gateway/stores/storage.ts';
import { cleanUp } from '../support/clean-up.ts';
import { type FaultProxy, startFaultProxy } from '../support/fault-proxy.ts';
import { ROOT } from '../support/process.ts';
import { startRedisServer } from '../support/redis.ts';
import { connectedRedis } from '../support/redis-database.ts';
import { auditEntry, idOfKey, issuing, revoking, storageAt } from '../support/redis-storage.ts';

/** A Redis, a connection to it, and a storage behind a network that can fail. */
async function setUp(timeoutMs = 300) {
  const server = await startRedisServer();
  cleanUp(server.stop);
  const redis = new Redis(server.url, { retryStrategy: () => 20 });
  redis.on('error', () => {});
  cleanUp(() => redis.disconnect());
  const proxy = await startFaultProxy(server.url);
  return { server, redis, proxy, storage: await storageAt(proxy.url, {}, timeoutMs) };
}

const targets = async (storage: RedisStorage) =>
  (await storage.tail('audit', { count: 99 })).map(([, { action, target }]) => `${action} ${target}`);

/** Starts a change. Cuts its connection once Redis has made it, before its answer. */
async function loseAnswer(proxy: FaultProxy, change: () => Promise<boolean>, isDone: () => Promise<boolean>) {
  proxy.set({ kind: 'delay', ms: 300 });
  const answer = change();
  while (!(await isDone())) await sleep(2);
  proxy.set({ kind: 'reset' });
  proxy.set({ kind: 'pass' });
  return await answer;
}

describe('a change whose answer was lost is made, once', async () => {
  const { redis, proxy, storage } = await setUp(5_000);
  const [key, id] = [`gateway:key:{${idOfKey(1)}}`, idOfKey(1)];

  test('a new key', async () => {
    const isDone = async () => (await redis.exists(key)) === 1;
    expect(await loseAnswer(proxy, () => storage.change(issuing(id)), isDone)).toBe(true);
  });

  test('a change of it, after which another change follows at once', async () => {
    const change = (name: string): Change => ({
      parts: [{ record: `key:${id}`, expect: { name: undefined }, set: { name } }],
      entries: [auditEntry(id)],
    });
    const isDone = async () => {
      if ((await redis.hget(key, 'name')) !== 'first') return false;
      await redis.hset(key, 'name', 'second');
      return true;
    };
    expect(await loseAnswer(proxy, () => storage.change(change('first')), isDone)).toBe(true);
    expect(await storage.read(`key:${id}`)).toMatchObject({ name: 'second' });
  });

  test('its revocation', async () => {
    const isDone = async () => (await redis.exists(key)) === 0;
    expect(await loseAnswer(proxy, () => storage.change(revoking(id)), isDone)).toBe(true);
  });

  test('an entry that is appended', async () => {
    const isDone = async () => (await redis.xlen('gateway:activity')) === 4;
    await loseAnswer(proxy, () => storage.change({ parts: [], entries: [auditEntry('*')] }), isDone);
  });

  test('and each has one entry', async () => {
    const all = ['key.change *', `key.revoke ${id}`, `key.change ${id}`, `key.create ${id}`];
    expect(await targets(storage)).toEqual(all);
  });
});

test('a change that Redis got only after a pause is made once, although it was sent again meanwhile', async () => {
  const { server, redis, storage } = await setUp();
  for (const [at, pauseMs] of [400, 900, 1_600].entries()) {
    const id = idOfKey(at);
    server.pause();
    const answers = [storage.change(issuing(id)), storage.change({ parts: [], entries: [auditEntry(id)] })];
    await sleep(pauseMs);
    server.resume();
    expect(await Promise.all(answers)).toEqual([true, true]);
    await expect.poll(() => targets(storage)).toHaveLength(2 * at + 2);
    expect(await redis.zscore('gateway:keys', id)).toBe('1000.5');
  }
});

test('if nobody answers, nobody knows whether it was made, and it takes 4 s to say so', async () => {
  const { proxy, redis, storage } = await setUp(1_000);
  proxy.set({ kind: 'hold' });
  const beganAt = performance.now();
  const fault = await storage.change(issuing(idOfKey(1))).catch((thrown) => thrown);
  expect(performance.now() - beganAt).toBeLessThan(7_000);
  expect(fault).toBeInstanceOf(Unknown);
  expect(fault.shown).toBe('It is not known whether the change was made. It is safe to repeat it.');
  expect(await redis.exists(`gateway:key:{${idOfKey(1)}}`)).toBe(1);
});

test('a change that was sent again and could not be made is never made, whenever its first call arrives', async () => {
  const { redis } = await setUp();
  const script = readFileSync(join(ROOT, 'gateway/stores/redis/change.lua'), 'utf8');
  const key = `gateway:key:{${idOfKey(1)}}`;
  const body = JSON.stringify({
    parts: [{ key: 2, exists: false, expect: [], set: ['plan', 'free'], remove: [] }],
    entries: [],
  });
  const run = (mark: string, again: string) =>
    redis.eval(script, 2, `gateway:change:{x}:${mark}`, key, body, 60, again);
  await redis.hset(key, 'plan', 'pro');
  expect([await run('a', '1'), await run('b', '')]).toEqual([
    [0, []],
    [0, []],
  ]);
  await redis.del(key);
  expect(await run('a', '')).toEqual([-1, []]);
  expect(await redis.exists(key)).toBe(0);
  expect([await run('b', ''), await run('b', ''), await run('b', '1')]).toEqual([
    [1, []],
    [1, []],
    [1, []],
  ]);
  expect(await redis.ttl('gateway:change:{x}:a')).toBeGreaterThan(0);
});

async function refused(change: Promise<unknown>): Promise<string | undefined> {
  const fault = (await change.catch((thrown) => thrown)) as NotMade;
  expect(fault).toBeInstanceOf(NotMade);
  // A command contains digests and fields.
  expect(inspect(fault)).not.toMatch(/plan|free|#!lua/);
  return fault.shown;
}

describe('a change that Redis refuses, or that was not sent, was not made', async () => {
  const { redis, server, storage } = await setUp(2_000);
  const [id, other] = [idOfKey(1), idOfKey(2)];
  await storage.change(issuing(id));

  test('out of memory, when only an urgent change is made', async () => {
    await storage.change(issuing(other));
    await redis.config('SET', 'maxmemory', '1');
    expect(await refused(storage.change(issuing(idOfKey(3))))).toBe('The change was not made. Redis is out of memory.');
    expect(await storage.change(revoking(other))).toBe(true);
    const disable: Change['parts'] = [{ record: `key:${id}`, exists: true, set: { disabled: '1' } }];
    expect(await storage.change({ parts: disable, entries: [auditEntry(id)], isUrgent: true })).toBe(true);
    await redis.config('SET', 'maxmemory', '0');
    expect(await redis.exists(`gateway:key:{${idOfKey(3)}}`)).toBe(0);
  });

  test.for([
    ['READONLY', ['REPLICAOF', '127.0.0.1', '1'], ['REPLICAOF', 'NO', 'ONE'], 'This Redis is a replica.'],
    [
      'NOREPLICAS',
      ['CONFIG', 'SET', 'min-replicas-to-write', '1'],
      ['CONFIG', 'SET', 'min-replicas-to-write', '0'],
      'Redis has too few replicas.',
    ],
  ] as const)('%s', async ([, [cause, ...causing], [heal, ...healing], why]) => {
    await redis.call(cause, ...causing);
    expect(await refused(storage.change(issuing(idOfKey(4))))).toBe(`The change was not made. ${why}`);
    await redis.call(heal, ...healing);
    expect(await redis.exists(`gateway:key:{${idOfKey(4)}}`)).toBe(0);
  });

  test('without the right to', async () => {
    await redis.acl('SETUSER', 'narrow', 'on', '>x', '~*', '+@all', '-eval');
    const url = new URL(server.url);
    [url.username, url.password] = ['narrow', 'x'];
    const narrow = await storageAt(url.href);
    expect(await refused(narrow.change(issuing(idOfKey(4))))).toContain('may not do that');
  });

  test('while Redis is away', async () => {
    await server.stop();
    await expect.poll(() => storage.now().catch(({ message }) => message)).toContain('writeable');
    const beganAt = performance.now();
    expect(await refused(storage.change(issuing(idOfKey(4))))).toBe('The change was not made. Redis is not connected.');
    expect(performance.now() - beganAt).toBeLessThan(1_000);
  });
});

test('keys that are issued one after another or at once take one call each', async () => {
  const { server } = await setUp();
  const redis = await connectedRedis(server.url);
  const storage = await storageAt(server.url);
  const calls: string[] = [];
  const monitor = await new Redis(server.url).monitor();
  cleanUp(() => monitor.disconnect());
  monitor.on('monitor', (_, [name]: string[], source: string) => void (source !== 'lua' && calls.push(name as string)));
  for (let at = 0; at < 1_000; at++) await storage.change(issuing(idOfKey(at)));
  await Promise.all(Array.from({ length: 1_000 }, (_, at) => storage.change(issuing(idOfKey(1_000 + at)))));
  expect(await redis.zcard('gateway:keys')).toBe(2_000);
  const count = (wanted: string) => calls.filter((name) => name === wanted).length;
  await expect.poll(() => count('eval')).toBeGreaterThanOrEqual(2_000);
  expect(count('eval')).toBe(2_000);
  // One look at the replicas a second.
  expect(calls.filter((name) => name !== 'info').length).toBeLessThan(2_000 * 1.02);
});
