import { describe, expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { auditEntry, issuing, revoking } from '../support/redis-storage.ts';
import { bothStorages } from '../support/storages.ts';

const { url } = await emptyDatabase();

const newId = () => createApiKey().credential.id;
const key = (id: string) => `key:${id}` as const;

describe.for(bothStorages(url))('a storage in %s', ([, open]) => {
  test('makes a change only if the record has the expected fields', async () => {
    const storage = await open();
    const id = newId();
    const change = (expect: Record<string, string | undefined>, set: Record<string, string | undefined>) =>
      storage.change({ parts: [{ record: key(id), exists: true, expect, set }], entries: [auditEntry(id)] });
    expect(await change({}, { name: 'a' })).toBe(false);
    const made = { ...issuing(id, { name: 'a', created_at: '5' }), entries: [] };
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

  test('makes only one of many concurrent changes that expect the same fields', async () => {
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

  test('moves the kept data of a revoked key, and the key keeps its place', async () => {
    const storage = await open();
    const ids = Array.from({ length: 5 }, newId);
    for (const [at, id] of ids.entries())
      await storage.change(issuing(id, { name: 'a', plan: `${at}`, created_at: `${at}.5` }));
    const [, second = '', third = ''] = ids;
    expect(await storage.change(revoking(second))).toBe(true);
    expect(await storage.change(revoking(second))).toBe(false);
    expect(await storage.read(key(second))).toBeUndefined();
    expect(await storage.read(`revoked:${second}`)).toEqual({ plan: '1', revoked: '1' });
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

  test('lists any page from either end, by creation and then by id, even after keys are created and revoked', async () => {
    const storage = await open();
    const ids = Array.from({ length: 7 }, newId).sort();
    const all = [...ids];
    const create = (id: string, at: number) => storage.change(issuing(id, { created_at: `${at}` }));
    for (const [at, id] of ids.entries()) await create(id, at === 4 ? 3 : at);
    const walk = async (query: { newestFirst: boolean; withRevoked: boolean }) => {
      const found: string[] = [];
      for (let page = await storage.listKeys({ limit: 2, ...query }); page.length > 0; ) {
        found.push(...page.map(({ id }) => id));
        page = await storage.listKeys({ limit: 2, ...query, after: page.at(-1) });
      }
      return found;
    };
    const expectPages = async () => {
      for (const withRevoked of [false, true]) {
        const expected = withRevoked ? all : ids;
        expect(await walk({ newestFirst: false, withRevoked })).toEqual(expected);
        expect(await walk({ newestFirst: true, withRevoked })).toEqual(expected.toReversed());
      }
      expect(await storage.countKeys()).toBe(ids.length);
      for (const newestFirst of [false, true])
        for (let offset = 0; offset <= 8; offset++)
          for (const limit of [1, 3, 9]) {
            const page = await storage.listKeys({ offset, limit, newestFirst });
            const inOrder = newestFirst ? ids.toReversed() : ids;
            expect(page.map(({ id }) => id)).toEqual(inOrder.slice(offset, offset + limit));
          }
    };
    await expectPages();
    const [gone = ''] = ids.splice(2, 1);
    await storage.change(revoking(gone));
    await expectPages();
    const last = newId();
    for (const list of [ids, all]) list.push(last);
    await create(last, 9);
    await expectPages();
  });
});
