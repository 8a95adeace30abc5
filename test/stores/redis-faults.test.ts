import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { type Change, NotMade, Unknown } from '../../gateway/stores/storage.ts';
import { cleanUp } from '../support/clean-up.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { ROOT } from '../support/process.ts';
import { connectedRedis, connectionTo, ownRedis } from '../support/redis-database.ts';
import { auditEntry, idOfKey, issuing, revoking, storageAt } from '../support/redis-storage.ts';

/** Starts a Redis, opens a connection to it, and opens a storage that uses it over a network that can fail. */
async function setUp(timeoutMs = 300) {
  const server = await ownRedis();
  const redis = connectionTo(server.url, { retryStrategy: () => 20 });
  const proxy = await startFaultProxy(server.url);
  return { server, redis, proxy, storage: await storageAt(proxy.url, {}, timeoutMs) };
}

test('a change without a reply for 4 s is reported as unknown, and is not made if it arrives later', async () => {
  const { server, proxy, redis, storage } = await setUp();
  const id = idOfKey(1);
  await storage.change(issuing(id));
  const replies = await startFaultProxy(server.url);
  const unanswered = await storageAt(replies.url, {}, 1_000);
  await unanswered.change(issuing(idOfKey(2)));
  const banning: Change = {
    parts: [{ record: `key:${id}`, exists: true, set: { banned_until: '9999999999' } }],
    entries: [],
  };
  proxy.set({ kind: 'black-hole' });
  replies.set({ kind: 'hold' });
  const beganAt = performance.now();
  const changes = [storage.change(banning), unanswered.change(issuing(idOfKey(3)))];
  for (const fault of await Promise.all(changes.map((change) => change.catch((thrown) => thrown)))) {
    expect(fault).toBeInstanceOf(Unknown);
    expect(fault.shown).toBe('It is not known whether the change was made. It is safe to repeat the change.');
  }
  expect(performance.now() - beganAt).toBeLessThan(7_000);
  expect(await redis.exists(`gateway:key:{${idOfKey(3)}}`)).toBe(1);
  // Now TCP delivers the call.
  proxy.set({ kind: 'pass' });
  await expect.poll(() => storage.now().catch(() => 0)).toBeGreaterThan(0);
  await sleep(300);
  expect(await redis.hget(`gateway:key:{${id}}`, 'banned_until')).toBeNull();
});

test('a change is neither sent nor made if Redis does not return its time', async () => {
  const { proxy, redis, storage } = await setUp();
  proxy.set({ kind: 'black-hole' });
  expect(await storage.change(issuing(idOfKey(1))).catch((thrown) => thrown)).toBeInstanceOf(NotMade);
  proxy.set({ kind: 'pass' });
  await expect.poll(() => storage.now().catch(() => 0)).toBeGreaterThan(0);
  await sleep(300);
  expect(await redis.exists(`gateway:key:{${idOfKey(1)}}`)).toBe(0);
});

test('if the retry of a change fails, the change is never made, however late its first call arrives', async () => {
  const { redis } = await setUp();
  const script = readFileSync(join(ROOT, 'gateway/stores/redis/change.lua'), 'utf8');
  const key = `gateway:key:{${idOfKey(1)}}`;
  const body = JSON.stringify({
    parts: [{ key: 2, exists: false, expect: [], set: ['plan', 'free'], remove: [] }],
    entries: [],
  });
  const run = (mark: string, again: string) =>
    redis.eval(script, 2, `gateway:change:{x}:${mark}`, key, body, 60, again, Date.now() * 1_000 + 60e6);
  await redis.hset(key, 'plan', 'pro');
  for (const refused of [await run('a', '1'), await run('b', '')]) expect(refused).toEqual([0, []]);
  await redis.del(key);
  expect(await run('a', '')).toEqual([-1, []]);
  expect(await redis.exists(key)).toBe(0);
  for (const again of ['', '', '1']) expect(await run('b', again)).toEqual([1, []]);
  expect(await redis.ttl('gateway:change:{x}:a')).toBeGreaterThan(0);
});

async function refused(change: Promise<unknown>): Promise<string | undefined> {
  const fault = (await change.catch((thrown) => thrown)) as NotMade;
  expect(fault).toBeInstanceOf(NotMade);
  // An error must not show commands, because they contain digests and fields.
  expect(inspect(fault)).not.toMatch(/plan|free|#!lua/);
  return fault.shown;
}

describe('a change that Redis refuses, or that is not sent, is not made', async () => {
  const { redis, server, storage } = await setUp(2_000);
  const [id, other] = [idOfKey(1), idOfKey(2)];
  await storage.change(issuing(id));

  test('when Redis is out of memory, except urgent changes', async () => {
    await storage.change(issuing(other));
    await redis.config('SET', 'maxmemory', '1');
    expect(await refused(storage.change(issuing(idOfKey(3))))).toBe('The change was not made. Redis is out of memory.');
    expect(await storage.change(revoking(other))).toBe(true);
    const disable: Change['parts'] = [{ record: `key:${id}`, exists: true, set: { disabled: '1' } }];
    expect(await storage.change({ parts: disable, entries: [auditEntry(id)], urgency: 'revocation' })).toBe(true);
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

  test('without permission', async () => {
    await redis.acl('SETUSER', 'narrow', 'on', '>x', '~*', '+@all', '-eval');
    const url = new URL(server.url);
    [url.username, url.password] = ['narrow', 'x'];
    const narrow = await storageAt(url.href);
    expect(await refused(narrow.change(issuing(idOfKey(4))))).toContain('lacks a permission');
  });

  test('while Redis is down', async () => {
    await server.stop();
    await expect.poll(() => storage.now().catch(({ shown }) => shown)).toBe('Redis is not connected.');
    const beganAt = performance.now();
    expect(await refused(storage.change(issuing(idOfKey(4))))).toBe('The change was not made. Redis is not connected.');
    expect(performance.now() - beganAt).toBeLessThan(1_000);
  });
});

test('each issued key takes one call to Redis, whether keys are issued one by one or all at once', async () => {
  const server = await ownRedis();
  const redis = await connectedRedis(server.url);
  const storage = await storageAt(server.url);
  const calls: string[] = [];
  const monitor = await connectionTo(server.url).monitor();
  monitor.on('error', () => {});
  cleanUp(() => monitor.disconnect());
  monitor.on('monitor', (_, [name]: string[], source: string) => void (source !== 'lua' && calls.push(name as string)));
  for (let at = 0; at < 300; at++) await storage.change(issuing(idOfKey(at)));
  await Promise.all(Array.from({ length: 300 }, (_, at) => storage.change(issuing(idOfKey(300 + at)))));
  expect(await redis.zcard('gateway:keys')).toBe(600);
  const count = (wanted: string) => calls.filter((name) => name === wanted).length;
  await expect.poll(() => count('eval')).toBeGreaterThanOrEqual(600);
  // Changes also read the replicas and the clock: once a second, or more often if the process was paused. With two
  // calls per key, there would be 1,200 calls.
  expect(calls.filter((name) => name !== 'info').length).toBeLessThan(600 * 1.5);
});
