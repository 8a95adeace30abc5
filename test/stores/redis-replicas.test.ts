import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { checkRedis } from '../../gateway/stores/redis/nodes.ts';
import { replicasOf } from '../../gateway/stores/redis/storage.ts';
import { Unconfirmed } from '../../gateway/stores/storage.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { auditEntry, idOfKey, issuing, revoking, storageAt } from '../support/redis-storage.ts';
import { startWithReplica } from '../support/replica.ts';

async function setUp() {
  const started = await startWithReplica();
  return { ...started, storage: await storageAt(started.url) };
}

const ofReplicas = async (redis: Redis) => (await checkRedis(redis)).filter(({ about }) => about === 'redis replicas');

const waits = async (redis: Redis) =>
  Number(/cmdstat_wait:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1] ?? 0);

test('a change is acknowledged once a replica has it', async () => {
  const { redis, follower, storage } = await setUp();
  for (let at = 0; at < 20; at++) {
    expect(await storage.change(issuing(idOfKey(at)))).toBe(true);
    expect(await follower.exists(`gateway:key:{${idOfKey(at)}}`)).toBe(1);
  }
  expect(await waits(redis)).toBe(20);
  await Promise.all(Array.from({ length: 200 }, (_, at) => storage.change(issuing(idOfKey(100 + at)))));
  expect(await waits(redis)).toBeLessThan(60);
  expect(await ofReplicas(redis)).toMatchObject([{ status: 'good' }]);
});

test('a change that no replica confirms is made but not acknowledged; later changes are acknowledged once a replica is back', async () => {
  const { url, replica, redis, follower, storage } = await setUp();
  await storage.change(issuing(idOfKey(1)));
  replica.pause();
  const fault = await storage.change(issuing(idOfKey(2))).catch((thrown) => thrown);
  expect(fault).toBeInstanceOf(Unconfirmed);
  expect(fault.shown).toBe('The change was made, but no replica has confirmed it. It is safe to repeat the change.');
  expect(await redis.exists(`gateway:key:{${idOfKey(2)}}`)).toBe(1);
  await expect((await storageAt(url)).relistKeys()).rejects.toThrow(Unconfirmed);
  // No replica has to confirm a change that was not made, or an audit entry alone.
  expect(await storage.change(revoking(idOfKey(9)))).toBe(false);
  await storage.change({ parts: [], entries: [auditEntry('*')] });

  // A connection for decisions must not wait for replicas.
  const deciding = await storageAt(url, { isConfirmed: false });
  const beganAt = performance.now();
  expect(await deciding.change(issuing(idOfKey(3)))).toBe(true);
  expect(performance.now() - beganAt).toBeLessThan(500);

  await expect
    .poll(() => ofReplicas(redis))
    .toMatchObject([{ status: 'fault', found: 'none answers: changes by operators get 503' }]);
  replica.resume();
  await expect.poll(() => ofReplicas(redis)).toMatchObject([{ status: 'good' }]);
  await expect.poll(() => follower.exists(`gateway:key:{${idOfKey(3)}}`)).toBe(1);
  expect(await storage.change(issuing(idOfKey(4)))).toBe(true);
});

test('a change does not wait for a replica if none is connected, and the doctor warns about this', async () => {
  const { replica, redis, storage } = await setUp();
  await storage.change(issuing(idOfKey(1)));
  await replica.stop();
  await expect.poll(() => redis.info('replication')).toContain('connected_slaves:0');
  expect(await storage.change(issuing(idOfKey(2)))).toBe(true);
  const before = await waits(redis);
  const beganAt = performance.now();
  for (let at = 10; at < 30; at++) expect(await storage.change(issuing(idOfKey(at)))).toBe(true);
  expect(performance.now() - beganAt).toBeLessThan(900);
  expect(await waits(redis)).toBe(before);
  const [found] = await ofReplicas(redis);
  expect(found).toMatchObject({ status: 'warning', found: expect.stringContaining('acknowledged changes are lost') });
});

test('without replicas, a change is acknowledged even if the connection is lost right after its reply', async () => {
  const { url, redis } = await emptyDatabase();
  const proxy = await startFaultProxy(url);
  const storage = await storageAt(proxy.url);
  await storage.change(issuing(idOfKey(1)));
  // After this time, the next change reads the list of replicas again.
  await sleep(1_100);
  proxy.set({ kind: 'cut-reply', afterBytes: 0, to: 'replication' });
  const changing = storage.change(issuing(idOfKey(2)));
  await expect.poll(() => redis.exists(`gateway:key:{${idOfKey(2)}}`)).toBe(1);
  await sleep(200);
  proxy.set({ kind: 'pass' });
  expect(await changing).toBe(true);
});

test('a confirmation by replicas is only valid on the connection of the change', async () => {
  const { redis } = await setUp();
  const noteWrite = replicasOf(redis);
  await redis.set('test:written', '1');
  const same = noteWrite('test:written');
  await same();
  const other = noteWrite('test:written');
  redis.stream.destroy();
  await expect.poll(() => redis.status).not.toBe('ready');
  await expect.poll(() => redis.status).toBe('ready');
  await expect(other()).rejects.toThrow(Unconfirmed);
});
