import { expect, test } from 'vitest';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import type { KeyListQuery } from '../../gateway/stores/storage.ts';
import { connectedRedis, emptyDatabase } from '../support/redis-database.ts';
import { idOfKey, issuing, revoking, storageAt } from '../support/redis-storage.ts';

const { url, redis } = await emptyDatabase();
const storage = await storageAt(url);
const numbers = async (query: KeyListQuery) =>
  (await storage.listKeys(query)).map(({ id }) => Number(id.slice('Key'.length)));

test('nothing is stored until something is, whatever a change leaves behind for a while', async () => {
  expect(await storage.isEmpty()).toBe(true);
  await redis.set('gateway:change:{gateway:plans}:x', 'called off');
  await redis.set('somebody:else', '1');
  expect(await storage.isEmpty()).toBe(true);
  await redis.hset('gateway:tokens', 'a', '1');
  expect(await storage.isEmpty()).toBe(false);
  await redis.flushdb();
});

test('keys are listed by creation, then by id, in pages, and keep their places when they are revoked', async () => {
  // 3 and 4 were created at the same time.
  const times = ['100.25', '200', '300', '300', '400.000001', '500'];
  for (const [at, created] of times.entries()) await storage.change(issuing(idOfKey(at + 1), { created_at: created }));
  await redis.zadd('gateway:keys', 250, 'no key id', 300, 'Key00000000', 9e9, '');
  await storage.change(revoking(idOfKey(2)));
  await storage.change(revoking(idOfKey(5)));
  expect(await numbers({ limit: 9 })).toEqual([1, 3, 4, 6]);
  expect(await numbers({ limit: 9, withRevoked: true })).toEqual([1, 2, 3, 4, 5, 6]);
  for (const withRevoked of [false, true]) {
    for (const newestFirst of [false, true]) {
      const all = await storage.listKeys({ limit: 9, withRevoked, newestFirst });
      const byCursor = [];
      for (let page = await storage.listKeys({ limit: 2, withRevoked, newestFirst }); page.length > 0; ) {
        byCursor.push(...page);
        page = await storage.listKeys({ limit: 2, withRevoked, newestFirst, after: page.at(-1) });
      }
      expect(byCursor).toEqual(all);
      if (withRevoked) continue;
      const byOffset = [];
      for (let offset = 0; offset < all.length; offset += 2)
        byOffset.push(...(await storage.listKeys({ offset, limit: 2, newestFirst })));
      expect(byOffset).toEqual(all);
    }
  }
  expect(await numbers({ limit: 9, withRevoked: true, newestFirst: true })).toEqual([6, 5, 4, 3, 2, 1]);
  expect(await storage.listKeys({ limit: 1 })).toEqual([{ id: idOfKey(1), createdAt: 100.25 }]);
  expect(await storage.countKeys()).toBe(4);
});

test('a place that exists stays, and a time that is none is the beginning of time', async () => {
  await redis.zadd('gateway:keys', 250, idOfKey(7));
  await storage.change(issuing(idOfKey(7), { created_at: '900' }));
  await storage.change(issuing(idOfKey(8), { created_at: 'yesterday' }));
  expect(await numbers({ limit: 9 })).toEqual([8, 1, 7, 3, 4, 6]);
});

test('keys without a place, or with another, get the one of their time of creation', async () => {
  expect(await storage.unlistedKeys()).toEqual([]);
  // The place of 7 was typed by hand.
  expect(await storage.relistKeys()).toBe(1);
  expect(await numbers({ limit: 99 })).toEqual([8, 1, 3, 4, 6, 7]);
  const before = await storage.listKeys({ limit: 99 });
  expect(await storage.relistKeys()).toBe(0);
  await redis.zrem('gateway:keys', idOfKey(3), idOfKey(8));
  await redis.hset('gateway:key:{short}', 'plan', 'free');
  await redis.set(`gateway:key:{${idOfKey(9)}}`, 'no hash');
  expect([...(await storage.unlistedKeys())].sort()).toEqual([idOfKey(3), idOfKey(8)]);
  expect(await storage.relistKeys()).toBe(2);
  expect(await storage.listKeys({ limit: 99 })).toEqual(before);

  await redis.del('gateway:keys');
  expect(await storage.relistKeys()).toBe(before.length);
  expect(await storage.listKeys({ limit: 99 })).toEqual(before);
});

test('a key that is revoked without a place gets one among the revoked ones', async () => {
  await redis.zrem('gateway:keys', idOfKey(6));
  await storage.change(revoking(idOfKey(6)));
  expect(await redis.zscore('gateway:keys:revoked', idOfKey(6))).toBe('500');
});

test('a key that is revoked or gets its place after it was found is not told', async () => {
  await redis.flushdb();
  const all = Array.from({ length: 3_000 }, (_, at) => idOfKey(at));
  const pipeline = redis.pipeline();
  for (const id of all) pipeline.hset(`gateway:key:{${id}}`, { plan: 'free', created_at: '1' });
  await pipeline.exec();
  const connection = await connectedRedis(url);
  const send = connection.sendCommand.bind(connection);
  let pages = 0;
  connection.sendCommand = async (command, ...more) => {
    const answer = await send(command, ...more);
    if (command.name.toLowerCase() !== 'zmscore' || ++pages > 3) return answer;
    await storage.change(revoking(idOfKey(2 * pages)));
    await redis.zadd('gateway:keys', 1, idOfKey(2 * pages + 1));
    return answer;
  };
  const found = await new RedisStorage(connection).unlistedKeys();
  expect([...found].sort()).toEqual(all.filter((id) => !/00[2-7]$/.test(id) || id > idOfKey(7)));
});
