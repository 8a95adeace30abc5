import { expect, test } from 'vitest';
import { Keys } from '../../gateway/stores/keys.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import type { Change, LogEntry } from '../../gateway/stores/storage.ts';
import { NotMade } from '../../gateway/stores/storage.ts';
import { connectedRedis, countCommands, emptyDatabase } from '../support/redis-database.ts';
import { auditEntry, idOfKey, issuing, revoking, storageAt } from '../support/redis-storage.ts';

const { url, redis } = await emptyDatabase();
const lost: [LogEntry, string][] = [];
const storage = await storageAt(url, { auditLength: 5, onLost: (...one) => void lost.push(one) });

/** A fresh key in the storage. */
let keys = 0;
async function issue(fields?: Record<string, string>): Promise<string> {
  const id = idOfKey(++keys);
  expect(await storage.change(issuing(id, fields))).toBe(true);
  return id;
}

const everything = async () => {
  const names = (await redis.keys('gateway:*')).filter((name) => !name.startsWith('gateway:change:')).sort();
  return await Promise.all(names.map(async (name) => [name, await redis.dump(name)]));
};

test('records that do not exist are read as undefined, and changed only if they may be missing', async () => {
  for (const record of ['plans', 'plans:kept', 'tokens', 'backup', `key:${idOfKey(0)}`] as const) {
    expect(await storage.read(record)).toBeUndefined();
    expect(await storage.change({ parts: [{ record, exists: true, set: { a: '1' } }], entries: [] })).toBe(false);
    expect(await storage.read(record)).toBeUndefined();
  }
  expect(await storage.change(revoking(idOfKey(0)))).toBe(false);
  expect(await storage.read(`revoked:${idOfKey(0)}`)).toBeUndefined();
  await storage.change({
    parts: [
      { record: 'plans', exists: false, set: { 'free.minute': '60' } },
      { record: 'plans:kept', set: { seen: 'x' } },
    ],
    entries: [{ log: 'plan history', fields: { version: 'x' } }],
  });
  expect(await redis.hgetall('gateway:plans')).toEqual({ 'free.minute': '60' });
  expect(await redis.hgetall('gateway:kept:{gateway:plans}')).toEqual({ seen: 'x' });
  expect((await storage.tail('plan history', { count: 9 })).map(([, fields]) => fields)).toEqual([{ version: 'x' }]);
  expect((await storage.readMany(['plans', 'tokens', 'plans:kept'])).map((one) => Object.keys(one ?? {}))).toEqual([
    ['free.minute'],
    [],
    ['seen'],
  ]);
  await redis.del('gateway:plans', 'gateway:kept:{gateway:plans}');
});

test('parts of two keys, which could be in two slots, are refused as a mistake', async () => {
  const parts = [1, 2].map((number) => ({ record: `key:${idOfKey(number)}` as const, set: { a: '1' } }));
  await expect(storage.change({ parts, entries: [] })).rejects.toThrow('one key or one table');
});

test('a revoked key leaves the fields as they are in that step, and keeps its place', async () => {
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

test('what is left of a revoked key loses its place once it has expired', async () => {
  const id = await issue();
  await storage.change(revoking(id));
  await redis.del(`gateway:usage:{${id}}`);
  await redis.zremrangebyrank('gateway:keys:revoked', 0, -1);
  await redis.zadd('gateway:keys:revoked', 1, id);
  await storage.change(revoking(await issue()));
  expect(await redis.zscore('gateway:keys:revoked', id)).toBeNull();
});

test('a value that is no hash exists, has no fields, and can only be removed', async () => {
  const id = await issue();
  await redis.del(`gateway:key:{${id}}`);
  await redis.set(`gateway:key:{${id}}`, 'spoilt');
  expect(await storage.read(`key:${id}`)).toEqual({});
  const disabling: Change = { parts: [{ record: `key:${id}`, exists: true, set: { disabled: '1' } }], entries: [] };
  await expect(storage.change(disabling)).rejects.toThrow(NotMade);
  await expect(storage.change(disabling)).rejects.toMatchObject({ shown: expect.stringContaining('another value') });
  const before = await everything();
  const together: Change['parts'] = [{ record: `revoked:${id}`, set: { a: '1' } }, ...disabling.parts];
  await expect(storage.change({ parts: together, entries: [] })).rejects.toThrow(NotMade);
  const enabling: Change['parts'] = [
    { record: `key:${id}`, expect: { name: undefined }, set: { disabled: undefined } },
  ];
  expect(await storage.change({ parts: enabling, entries: [] })).toBe(true);
  expect(await everything()).toEqual(before);
  expect(await storage.change({ parts: [{ record: `key:${id}`, expect: { plan: 'free' } }], entries: [] })).toBe(false);
  expect(await storage.change(revoking(id))).toBe(true);
  expect([await storage.read(`key:${id}`), await storage.read(`revoked:${id}`)]).toEqual([undefined, { revoked: '1' }]);
});

test('an index that is no sorted set keeps a key from being issued, and nothing is left of it', async () => {
  await issue();
  await redis.rename('gateway:keys', 'test:keys');
  await redis.set('gateway:keys', 'spoilt');
  await expect(storage.change(issuing(idOfKey(++keys)))).rejects.toThrow(NotMade);
  expect(await redis.keys(`gateway:*{${idOfKey(keys)}}*`)).toEqual([]);
  await redis.rename('test:keys', 'gateway:keys');
});

test('an entry whose log is no stream is reported, and what it tells is done', async () => {
  const id = await issue();
  await redis.rename('gateway:activity', 'test:activity');
  await redis.set('gateway:activity', 'spoilt');
  lost.length = 0;
  const told: [LogEntry, string][] = [];
  const change = { ...revoking(id), onLost: (...one: [LogEntry, string]) => void told.push(one) };
  expect(await storage.change(change)).toBe(true);
  expect(told).toEqual([[auditEntry(id, 'key.revoke'), expect.stringContaining('WRONGTYPE')]]);
  expect(lost).toEqual(told);
  await storage.change({ parts: [], entries: [auditEntry('appended')] });
  expect(lost.map(([entry]) => entry.fields.target)).toEqual([id, 'appended']);
  await redis.rename('test:activity', 'gateway:activity');
});

test('bytes that are not UTF-8 are read as U+FFFD and do not keep a record from being changed', async () => {
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

test('a field whose name is not UTF-8 is removed, and no other', async () => {
  const id = await issue();
  const typed = [Buffer.from([0x61, 0xff, 0xfe, 0x62]), 'x', 'ab', 'y'];
  await redis.call('HSET', `gateway:key:{${id}}`, ...typed);
  const read = await storage.read(`key:${id}`);
  const gone = Object.keys(read ?? {}).filter((field) => field.includes('\uFFFD'));
  const set = Object.fromEntries(gone.map((field) => [field, undefined]));
  expect(await storage.change({ parts: [{ record: `key:${id}`, expect: { ...read }, set }], entries: [] })).toBe(true);
  expect(await storage.read(`key:${id}`)).toEqual({ plan: 'free', created_at: '1000.5', ab: 'y' });
});

test('half of a pair of characters is written as U+FFFD', async () => {
  const id = await issue({ plan: 'free', name: 'a\uD83Db' });
  expect((await storage.read(`key:${id}`))?.name).toBe('a\uFFFDb');
});

test('an entry equal to one of more than a minute ago repeats nothing', async () => {
  await redis.del('gateway:activity');
  const { log, fields } = auditEntry('a');
  const asked = { log, fields: { ...fields, requestId: '1' } };
  await redis.xadd('gateway:activity', Date.now() - 61_000, ...Object.entries(asked.fields).flat());
  for (let made = 0; made < 2; made++) await storage.change({ parts: [], entries: [asked] });
  expect(await storage.tail('audit', { count: 9 })).toHaveLength(2);
});

test('the clock is that of Redis', async () => {
  const [seconds] = await redis.time();
  expect(Math.abs((await storage.now()) / 1e6 - Number(seconds))).toBeLessThan(2);
});

test('a page of keys is read once, each with its marks, and no key behind it', async () => {
  for (let at = 0; at < 250; at++) await issue();
  const connection = await connectedRedis(url);
  const sent = countCommands(connection);
  const { keys: listed, next } = await new Keys(new RedisStorage(connection)).list({
    offset: 10,
    limit: 100,
    isWanted: () => true,
  });
  expect([listed.length, next]).toEqual([100, 110]);
  expect(sent('hgetall')).toBe(200);
});
