import { describe, expect, test } from 'vitest';
import { createApiKey, type Secret } from '../../gateway/limiter/credential.ts';
import type { KeyRecord } from '../../gateway/limiter/key-record.ts';
import { type Activity, AuditLog } from '../../gateway/stores/audit.ts';
import { type BackedUpKey, Keys } from '../../gateway/stores/keys.ts';
import { Plans } from '../../gateway/stores/plans.ts';
import { type Storage, withOwn } from '../../gateway/stores/storage.ts';
import { Tokens } from '../../gateway/stores/tokens.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { auditEntry, issuing, revoking } from '../support/redis-storage.ts';
import { secretWith } from '../support/secrets.ts';
import { bothStorages, failingAt, MadeFault } from '../support/storages.ts';

const { url } = await emptyDatabase();

const AT = 1_795_132_800_000_000;

const recordWith = (digest: string, about: Partial<KeyRecord> = {}): KeyRecord => ({
  plan: 'free',
  name: 'test',
  createdAt: AT,
  secrets: [secretWith(digest)],
  ...about,
});

const entry = (action: Activity['action'], target: string): Activity => ({
  actor: 'ann',
  action,
  target,
  reason: 'a test',
  via: 'api',
  changes: [],
});

/** How many times an entry is in the audit log. */
async function recorded(storage: Storage, { target, action }: Activity): Promise<number> {
  const isWanted = (one: Activity) => one.target === target && one.action === action;
  return (await new AuditLog(storage).list({ after: undefined, limit: 100, isWanted })).activity.length;
}

async function withKey(storage: Storage, about: Partial<KeyRecord> = {}) {
  const { id, digest } = createApiKey().credential;
  await new Keys(storage).create(id, recordWith(digest, about), entry('key.create', id));
  return { id };
}

describe.for(bothStorages(url))('the stores over %s', ([, open]) => {
  test('use reserved space only for a change that restricts a key or a secret', async () => {
    const made: unknown[] = [];
    const storage = await open();
    const noting = withOwn(storage, {
      change: async (change) => {
        made.push(change.urgency === 'revocation');
        return await storage.change(change);
      },
    });
    const { id } = await withKey(storage, { minute: 10 });
    const keys = new Keys(noting);
    const change = async (record: Partial<KeyRecord>) => void (await keys.change(id, () => ({ record })));
    const changeSecret = async (to: Partial<Secret>) =>
      void (await keys.change(id, ({ secrets: [old] }) => ({ record: { secrets: [{ ...(old as Secret), ...to }] } })));
    for (const minute of [9, 11]) await change({ minute });
    for (const day of [9, undefined]) await change({ day });
    expect(made.splice(0)).toEqual([true, false, true, false]);
    const later = AT + 1e12;
    for (const networks of [['4:0a/8', '4:0b/8'], ['4:0b/8'], ['4:0c/8'], []]) await changeSecret({ networks });
    expect(made.splice(0)).toEqual([true, true, false, false]);
    for (const scope of [['read'], ['write'], ['read', 'write']] as const) await changeSecret({ scope });
    expect(made.splice(0)).toEqual([true, false, false]);
    for (const expiresAt of [later, later - 1, later + 1, undefined]) await changeSecret({ expiresAt });
    expect(made.splice(0)).toEqual([true, true, false, false]);
    await changeSecret({ expiresAt: later, networks: ['4:0a/8'] });
    await changeSecret({ expiresAt: later - 1, networks: [] });
    await changeSecret({ name: 'other' });
    expect(made.splice(0)).toEqual([true, false, false]);
  });

  /** Operators' actions, each with its audit entry and a check of its result. After a fault, each can be repeated. */
  const DEEDS = {
    async issue(storage: Storage, sound: Storage) {
      const { id, digest } = createApiKey().credential;
      const about = entry('key.create', id);
      const deed = () => new Keys(storage).create(id, recordWith(digest), about);
      return { deed, about, isThere: async () => (await new Keys(sound).get(id)) !== undefined };
    },
    async change(storage: Storage, sound: Storage) {
      const { id } = await withKey(sound);
      const about = entry('key.change', id);
      const deed = () =>
        new Keys(storage).change(id, ({ name }) => ({
          record: { name: 'changed' },
          activity: name === 'changed' ? undefined : about,
        }));
      return { deed, about, isThere: async () => (await new Keys(sound).get(id))?.record.name === 'changed' };
    },
    async revoke(storage: Storage, sound: Storage) {
      const { id } = await withKey(sound);
      const about = entry('key.revoke', id);
      const deed = () => new Keys(storage).remove(id, () => about);
      return { deed, about, isThere: async () => (await new Keys(sound).get(id)) === undefined };
    },
    async restore(storage: Storage, sound: Storage) {
      await withKey(sound);
      const { keys } = await new Keys(sound).export({ after: undefined, limit: 100 });
      const moved = { ...keys[0], id: createApiKey().credential.id } as BackedUpKey;
      const about = entry('key.restore', moved.id);
      const deed = () => new Keys(storage).restore(moved, () => about);
      return { deed, about, isThere: async () => (await new Keys(sound).get(moved.id)) !== undefined };
    },
    async plan(storage: Storage, sound: Storage) {
      await new Plans(sound).begin();
      const about = entry('plan.change', 'free');
      const change = { author: 'ann', reason: '', action: 'set', entriesFor: () => [about] } as const;
      const deed = () => new Plans(storage).change(() => ({ 'free.minute': '77' }), change);
      return { deed, about, isThere: async () => (await new Plans(sound).read())?.['free.minute'] === '77' };
    },
    async token(storage: Storage, sound: Storage) {
      const token = { name: 'ann', role: 'viewer', createdAt: '2026-01-01T00:00:00Z', digest: 'a'.repeat(64) } as const;
      const about = entry('token.create', 'one');
      const deed = () => new Tokens(storage).create('one', token, about);
      return { deed, about, isThere: async () => (await new Tokens(sound).find('one')) !== undefined };
    },
  };

  const FAULTS = Object.keys(DEEDS).flatMap((name) =>
    (['before', 'after'] as const).map((when) => [name as keyof typeof DEEDS, when] as const),
  );

  test.for(FAULTS)(
    '%s: with a fault %s any step, the change is made with its audit entry or not at all',
    async ([name, when]) => {
      for (let nth = 1; ; nth++) {
        const sound = await open();
        const failing = failingAt(sound, nth, when);
        const { deed, about, isThere } = await DEEDS[name](failing, sound);
        const fault = await deed().then(
          () => undefined,
          (thrown: unknown) => thrown,
        );
        if (failing.hasFailed()) expect(fault).toBeInstanceOf(MadeFault);
        expect(await recorded(sound, about)).toBe((await isThere()) ? 1 : 0);
        if (!failing.hasFailed()) break;
        await deed().catch(() => undefined);
        expect([await isThere(), await recorded(sound, about)]).toEqual([true, 1]);
      }
    },
  );
});

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
