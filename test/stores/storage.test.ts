import { describe, expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { auditEntry, bothStorages } from '../support/storages.ts';

const { url } = await emptyDatabase();

const newId = () => createApiKey().credential.id;
const key = (id: string) => `key:${id}` as const;
const revoked = (id: string) => `revoked:${id}` as const;

describe.for(bothStorages(url))('a storage in %s', ([, open]) => {
  test('is empty until something is stored', async () => {
    const storage = await open();
    expect(await storage.isEmpty()).toBe(true);
    expect(await storage.read('plans')).toBeUndefined();
    expect(await storage.change({ parts: [{ record: 'plans', set: { a: '1' } }], entries: [] })).toBe(true);
    expect(await storage.isEmpty()).toBe(false);
    expect(await storage.read('plans')).toEqual({ a: '1' });
  });

  test('changes what is as expected, and nothing else', async () => {
    const storage = await open();
    const id = newId();
    const change = (expect: Record<string, string | undefined>, set: Record<string, string | undefined>) =>
      storage.change({ parts: [{ record: key(id), exists: true, expect, set }], entries: [auditEntry(id)] });
    expect(await change({}, { name: 'a' })).toBe(false);
    const made = { parts: [{ record: key(id), exists: false, set: { name: 'a', created_at: '5' } }], entries: [] };
    expect(await storage.change(made)).toBe(true);
    expect(await storage.change(made)).toBe(false);
    expect(await change({ name: 'b' }, { name: 'c' })).toBe(false);
    expect(await change({ name: undefined }, { name: 'c' })).toBe(false);
    expect(await change({ plan: 'x' }, { name: 'c' })).toBe(false);
    expect(await storage.read(key(id))).toEqual({ name: 'a', created_at: '5' });
    expect(await storage.tail('audit', { count: 10 })).toEqual([]);
    expect(await change({ name: 'a', plan: undefined }, { name: undefined, plan: 'ü "\n' })).toBe(true);
    expect(await storage.read(key(id))).toEqual({ plan: 'ü "\n', created_at: '5' });
    expect((await storage.tail('audit', { count: 10 })).map(([, fields]) => fields)).toEqual([auditEntry(id).fields]);
  });

  test('changes all parts or none', async () => {
    const storage = await open();
    const [id, other] = [newId(), newId()];
    await storage.change({ parts: [{ record: revoked(id), set: { name: 'gone' } }], entries: [] });
    const parts = [
      { record: key(id), exists: false, set: { name: 'a', created_at: '5' } },
      { record: revoked(id), exists: false },
    ];
    expect(await storage.change({ parts, entries: [auditEntry(id)] })).toBe(false);
    expect([await storage.read(key(id)), await storage.countKeys()]).toEqual([undefined, 0]);
    expect(await storage.tail('audit', { count: 10 })).toEqual([]);
    expect(await storage.read(key(other))).toBeUndefined();
  });

  test('lets one of many changes at once win', async () => {
    const storage = await open();
    const id = newId();
    await storage.change({ parts: [{ record: key(id), set: { name: '0', created_at: '5' } }], entries: [] });
    const changes = Array.from({ length: 20 }, (_, at) =>
      storage.change({
        parts: [{ record: key(id), expect: { name: '0' }, set: { name: `${at + 1}` } }],
        entries: [auditEntry(`${at}`)],
      }),
    );
    expect((await Promise.all(changes)).filter((isMade) => isMade)).toHaveLength(1);
    expect(await storage.tail('audit', { count: 30 })).toHaveLength(1);
  });

  test('moves what is left of a revoked key, which keeps its place', async () => {
    const storage = await open();
    const ids = Array.from({ length: 5 }, newId);
    for (const [at, id] of ids.entries())
      await storage.change({
        parts: [{ record: key(id), exists: false, set: { name: `${at}`, plan: 'free', created_at: `${at}.5` } }],
        entries: [],
      });
    const [, second = '', third = ''] = ids;
    const moveTo = { record: revoked(second), fields: ['name', 'missing'], seconds: 60 };
    const revoke = {
      parts: [{ record: key(second), exists: true, moveTo }],
      entries: [auditEntry(second)],
      isUrgent: true,
    };
    expect(await storage.change(revoke)).toBe(true);
    expect(await storage.change(revoke)).toBe(false);
    expect(await storage.read(key(second))).toBeUndefined();
    expect(await storage.read(revoked(second))).toEqual({ name: '1', revoked: '1' });
    expect(await storage.countKeys()).toBe(4);
    const listed = async (query: object) => (await storage.listKeys({ limit: 10, ...query })).map(({ id }) => id);
    expect(await listed({})).toEqual(ids.filter((id) => id !== second));
    expect(await listed({ withRevoked: true })).toEqual(ids);
    expect(await listed({ newestFirst: true, offset: 1 })).toEqual([ids[3], ids[2], ids[0]]);
    expect(await listed({ after: { createdAt: 0.5, id: ids[0] } })).toEqual(ids.slice(2));
    expect(await listed({ after: { createdAt: 0.5, id: ids[0] }, withRevoked: true, limit: 2 })).toEqual([
      second,
      third,
    ]);
    expect(await storage.unlistedKeys()).toEqual([]);
  });

  test('lists a page at any place, from either end, as keys come and go', async () => {
    const storage = await open();
    const ids = Array.from({ length: 7 }, newId);
    const create = (id: string, at: number) =>
      storage.change({ parts: [{ record: key(id), exists: false, set: { created_at: `${at}` } }], entries: [] });
    for (const [at, id] of ids.entries()) await create(id, at);
    const expectPages = async () => {
      expect(await storage.countKeys()).toBe(ids.length);
      for (const newestFirst of [false, true])
        for (let offset = 0; offset <= 8; offset++)
          for (const limit of [1, 3, 9]) {
            const page = await storage.listKeys({ offset, limit, newestFirst });
            const all = newestFirst ? ids.toReversed() : ids;
            expect(page.map(({ id }) => id)).toEqual(all.slice(offset, offset + limit));
          }
    };
    await expectPages();
    const [gone = ''] = ids.splice(2, 1);
    const moveTo = { record: revoked(gone), fields: [], seconds: 60 };
    await storage.change({ parts: [{ record: key(gone), moveTo }], entries: [] });
    await expectPages();
    ids.push(newId());
    await create(ids.at(-1) ?? '', 9);
    await expectPages();
  });

  test('reads many records in their order, with gaps', async () => {
    const storage = await open();
    const ids = Array.from({ length: 70 }, newId);
    await Promise.all(
      ids.map((id, at) =>
        at % 2 === 0
          ? storage.change({ parts: [{ record: key(id), set: { name: id, created_at: '1' } }], entries: [] })
          : undefined,
      ),
    );
    const found = await storage.readMany(ids.map(key));
    expect(found.map((fields) => fields?.name)).toEqual(ids.map((id, at) => (at % 2 === 0 ? id : undefined)));
  });

  test('keeps the newest entries in order, with ids that increase, and leaves out a repetition', async () => {
    const storage = await open({ auditLength: 4 });
    const asked = (target: string, action?: string) => {
      const { log, fields } = auditEntry(target, action);
      return { log, fields: { ...fields, requestId: '1' } };
    };
    const all = () => storage.tail('audit', { count: 10 });
    const shown = async () => (await all()).map(([, { target, action }]) => `${action} ${target}`.replace('key.', ''));
    await storage.change({ parts: [], entries: [asked('a'), asked('a'), asked('b'), asked('a')] });
    expect(await shown()).toEqual(['change b', 'change a']);
    const part = { record: 'backup', set: { completed_at: '1' } } as const;
    for (let made = 0; made < 2; made++) await storage.change({ parts: [part], entries: [asked('*')] });
    expect(await shown()).toEqual(['change *', 'change b', 'change a']);
    // Of one target, what differs from the newest is no repetition.
    await storage.change({ parts: [], entries: [asked('a', 'key.revoke'), asked('a')] });
    expect(await shown()).toEqual(['change a', 'revoke a', 'change *', 'change b']);
    const entries = await all();
    const order = entries.map(([id]) => id.split('-').map(Number) as [number, number]);
    expect(order.toSorted(([a, b], [c, d]) => c - a || d - b)).toEqual(order);
    expect(new Set(entries.map(([id]) => id)).size).toBe(4);
    expect(await storage.tail('audit', { after: entries[1]?.[0], count: 1 })).toEqual(entries.slice(2, 3));
    expect(await storage.tail('plan history', { count: 2 })).toEqual([]);
    await storage.change({ parts: [], entries: [{ log: 'plan history', fields: { version: 'x' } }] });
    expect((await storage.tail('plan history', { count: 9 })).map(([, fields]) => fields)).toEqual([{ version: 'x' }]);
  });

  test('appends an equal entry that repeats no request', async () => {
    const storage = await open();
    for (let time = 0; time < 3; time++) await storage.change({ parts: [], entries: [auditEntry('free')] });
    expect(await storage.tail('audit', { count: 10 })).toHaveLength(3);
  });

  test('tells the time in microseconds', async () => {
    const storage = await open();
    expect(Math.abs((await storage.now()) / 1_000 - Date.now())).toBeLessThan(60_000);
  });
});
