import { expect, test } from 'vitest';
import { Keys } from '../../gateway/stores/keys.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { type Change, type LogEntry, NotMade } from '../../gateway/stores/storage.ts';
import { connectedRedis, countCommands, emptyDatabase } from '../support/redis-database.ts';
import { auditEntry, idOfKey, issuing, revoking, storageAt } from '../support/redis-storage.ts';

const { url, redis } = await emptyDatabase();
const lost: [LogEntry, string][] = [];
const storage = await storageAt(url, { auditLength: 5, onLost: (...one) => void lost.push(one) });

let keys = 6;
async function issue(fields?: Record<string, string>): Promise<string> {
  const id = idOfKey(++keys);
  expect(await storage.change(issuing(id, fields))).toBe(true);
  return id;
}

test('a store counts as empty even if it contains temporary data of a change', async () => {
  expect(await storage.isEmpty()).toBe(true);
  await redis.set('gateway:change:{gateway:plans}:x', 'cancelled');
  await redis.set('somebody:else', '1');
  expect(await storage.isEmpty()).toBe(true);
  await redis.hset('gateway:tokens', 'a', '1');
  expect(await storage.isEmpty()).toBe(false);
  await redis.flushdb();
});

test('a member of the index that is not the id of a key is never listed', async () => {
  const times = ['100.25', '200', '300'];
  for (const [at, created] of times.entries()) await storage.change(issuing(idOfKey(at + 1), { created_at: created }));
  await redis.zadd('gateway:keys', 250, 'no key id', 300, 'Key00000000', 9e9, '');
  expect(await storage.listKeys({ limit: 2 })).toEqual([
    { id: idOfKey(1), createdAt: 100.25 },
    { id: idOfKey(2), createdAt: 200 },
  ]);
  const newest = await storage.listKeys({ limit: 9, newestFirst: true, withRevoked: true });
  expect(newest.map(({ id }) => id)).toEqual([3, 2, 1].map(idOfKey));
  expect(await storage.countKeys()).toBe(3);
});

test('after a revocation, the last fields and the place of the key are kept', async () => {
  const id = await issue();
  await redis.hset(`gateway:key:{${id}}`, { admitted: '7', secret: 'x' });
  await redis.set(`gateway:usage:{${id}}`, 'spoilt');
  expect(await storage.change(revoking(id))).toBe(true);
  expect(await storage.read(`key:${id}`)).toBeUndefined();
  expect(await storage.read(`revoked:${id}`)).toEqual({ revoked: '1', plan: 'free', admitted: '7' });
  expect(await redis.ttl(`gateway:usage:{${id}}`)).toBeGreaterThan(55);
  expect(await redis.zscore('gateway:keys', id)).toBeNull();
  expect(await redis.zscore('gateway:keys:revoked', id)).toBe('1000.5');
  expect(await storage.change(issuing(id))).toBe(false);
  expect(await storage.change(revoking(id))).toBe(false);
});

test('a revoked key loses its place when its kept data expires', async () => {
  const id = await issue();
  await storage.change(revoking(id));
  await redis.del(`gateway:usage:{${id}}`);
  await redis.zremrangebyrank('gateway:keys:revoked', 0, -1);
  await redis.zadd('gateway:keys:revoked', 1, id);
  await storage.change(revoking(await issue()));
  expect(await redis.zscore('gateway:keys:revoked', id)).toBeNull();
});

test('a key is not issued, even in part, if the index is not a sorted set', async () => {
  await issue();
  await redis.rename('gateway:keys', 'test:keys');
  await redis.set('gateway:keys', 'spoilt');
  await expect(storage.change(issuing(idOfKey(++keys)))).rejects.toThrow(NotMade);
  expect(await redis.keys(`gateway:*{${idOfKey(keys)}}*`)).toEqual([]);
  await redis.rename('test:keys', 'gateway:keys');
});

test('bytes that are not UTF-8 are read as U+FFFD and do not prevent changes to the record', async () => {
  const id = await issue();
  await redis.call('HSET', `gateway:key:{${id}}`, 'name', Buffer.from([0x41, 0xff, 0x42]), Buffer.from([0xfe]), 'x');
  const read = await storage.read(`key:${id}`);
  expect(read).toEqual({ plan: 'free', created_at: '1000.5', name: 'A\uFFFDB', '\uFFFD': 'x' });
  const rename: Change = { parts: [{ record: `key:${id}`, expect: { ...read }, set: { name: 'new' } }], entries: [] };
  expect(await storage.change(rename)).toBe(true);
  expect((await storage.read(`key:${id}`))?.name).toBe('new');
  await redis.hset(`gateway:key:{${id}}`, 'plan', 'pro');
  expect(await storage.change(rename)).toBe(false);
});

const MINUTE_AGO = -61_000;
const AHEAD = 3_600_000;

test.for([
  ['from over a minute ago', MINUTE_AGO, undefined],
  ['from a clock that was an hour ahead', AHEAD, undefined],
  ['from over a minute ago, written after such a clock was set back', AHEAD, MINUTE_AGO],
] as const)('an audit entry identical to one %s is not a repetition', async ([, id, own]) => {
  await redis.del('gateway:activity');
  const { log, fields } = auditEntry('a');
  const asked = { log, fields: { ...fields, requestId: '1' } };
  const before = { ...asked.fields, ...(own && { at: Date.now() + own }) };
  await redis.xadd('gateway:activity', Date.now() + id, ...Object.entries(before).flat());
  for (let made = 0; made < 2; made++) await storage.change({ parts: [], entries: [asked] });
  expect(await storage.tail('audit', { count: 9 })).toHaveLength(2);
});

test('a time that somebody typed into an audit entry does not keep changes from being made', async () => {
  await redis.del('gateway:activity');
  const { log, fields } = auditEntry('a');
  const asked = { log, fields: { ...fields, requestId: '1' } };
  const before = { ...asked.fields, at: 'noon' };
  await redis.xadd('gateway:activity', '*', ...Object.entries(before).flat());
  expect(await storage.change({ parts: [], entries: [asked] })).toBe(true);
  expect(await storage.tail('audit', { count: 9 })).toHaveLength(1);
});

test('a list reads only the keys of its page, with their counts', async () => {
  for (let at = 0; at < 250; at++) await issue();
  const connection = await connectedRedis(url);
  const sent = countCommands(connection);
  const { keys: listed, next } = await new Keys(new RedisStorage(connection)).list({
    offset: 10,
    limit: 100,
    isWanted: () => true,
  });
  expect([listed.length, next?.id]).toEqual([100, listed.at(-1)?.id]);
  expect(sent('hgetall')).toBe(300);
});

test('a key that is revoked or listed during the scan for unlisted keys is not reported', async () => {
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
