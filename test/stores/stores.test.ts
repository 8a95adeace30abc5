import { describe, expect, test } from 'vitest';
import { createApiKey, type Secret } from '../../gateway/limiter/credential.ts';
import type { KeyRecord } from '../../gateway/limiter/key-record.ts';
import { DEFAULT_PLANS, type StoredPlans, storedPlans } from '../../gateway/limiter/plans.ts';
import { type Activity, AuditLog } from '../../gateway/stores/audit.ts';
import type { BackedUpKey } from '../../gateway/stores/key-backup.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { Plans } from '../../gateway/stores/plans.ts';
import { type Storage, withOwn } from '../../gateway/stores/storage.ts';
import { Tokens } from '../../gateway/stores/tokens.ts';
import { emptyDatabase } from '../support/redis-database.ts';
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

const everything = { after: undefined, limit: 100, isWanted: () => true };
const actionsIn = async (storage: Storage, target: string) =>
  (await new AuditLog(storage).list(everything)).activity
    .filter((one) => one.target === target)
    .map(({ action }) => action);

/** Newest first. */
const madeBy = async (storage: Storage, via: Activity['via']) =>
  (await new AuditLog(storage).list(everything)).activity.filter((one) => one.via === via);

async function withKey(storage: Storage, about: Partial<KeyRecord> = {}) {
  const { id, digest } = createApiKey().credential;
  const keys = new Keys(storage);
  await keys.create(id, recordWith(digest, about), entry('key.create', id));
  return { keys, id, digest };
}

/** As `DEL gateway:plans` does. */
async function deletePlans(storage: Storage): Promise<void> {
  const gone = Object.fromEntries(Object.keys((await storage.read('plans')) ?? {}).map((field) => [field, undefined]));
  await storage.change({ parts: [{ record: 'plans', set: gone }], entries: [] });
}

describe.for(bothStorages(url))('the stores over %s', ([, open]) => {
  test('issue, change, ban and revoke a key, each with its entry', async () => {
    const storage = await open();
    const { keys, id, digest } = await withKey(storage);
    expect(await keys.isValid(id, digest)).toBe(true);
    const changed = await keys.change(id, () => ({ record: { name: 'other' }, activity: entry('key.change', id) }));
    expect(changed?.record.name).toBe('other');
    const until = AT + 1e9;
    const banned = await keys.change(id, () => ({ ban: { until, text: 'x' }, activity: entry('ban.set', id) }));
    expect([banned?.bannedUntil, (await keys.get(id))?.banReason]).toEqual([until, { until, text: 'x' }]);
    expect((await keys.change(id, () => ({ ban: 'lift' })))?.bannedUntil).toBe(0);
    expect(await keys.remove(id, entry('key.revoke', id))).toBe(true);
    expect(await keys.remove(id, entry('key.revoke', id))).toBe(false);
    expect([await keys.get(id), await keys.isValid(id, digest)]).toEqual([undefined, false]);
    expect(await keys.change(id, () => ({ record: { name: 'again' } }))).toBeUndefined();
    expect(await actionsIn(storage, id)).toEqual(['key.revoke', 'ban.set', 'key.change', 'key.create']);
    const { keys: walked } = await keys.walk({ after: undefined, limit: 10 });
    expect(walked).toMatchObject([{ id, isRevoked: true, record: { name: 'other' } }]);
  });

  test('restore a key as it was, but none that is there, was revoked, or is not valid', async () => {
    const storage = await open();
    const { keys, id } = await withKey(storage, { name: 'kept', minute: 5, expiresAt: 9_999_999_999 * 1e6 });
    const page = await keys.export({ after: undefined, limit: 10 });
    const [backedUp] = page.keys as [BackedUpKey];
    const restoreEntry = (key: string, name: string): Activity => ({
      ...entry('key.restore', key),
      changes: [{ field: 'name', to: name }],
    });
    expect(await keys.restore([backedUp], restoreEntry)).toEqual(['present']);
    const other = { ...backedUp, id: createApiKey().credential.id };
    const bad = { ...other, fields: { ...backedUp.fields, minute: 'abc', kept: '' } };
    expect(await keys.restore([bad], restoreEntry)).toEqual([{ refused: expect.stringContaining('minute') }]);
    expect(await keys.restore([other], restoreEntry, true)).toEqual(['restored']);
    expect(await keys.get(other.id)).toBeUndefined();
    expect(await keys.restore([other], restoreEntry)).toEqual(['restored']);
    expect((await keys.get(other.id))?.record).toEqual((await keys.get(id))?.record);
    expect(await actionsIn(storage, other.id)).toEqual(['key.restore']);
    await keys.remove(other.id);
    expect(await keys.restore([other], restoreEntry)).toEqual(['revoked']);
  });

  test('keep the last good value where a bad one was typed', async () => {
    const storage = await open();
    const { keys, id } = await withKey(storage, { plan: 'pro', minute: 7, name: 'good' });
    const typed = { plan: 'gold', minute: '-1', name: 'a\nb', expires_at: 'never' };
    await storage.change({ parts: [{ record: `key:${id}`, set: typed }], entries: [] });
    const entryOf = await keys.get(id);
    expect(entryOf).toMatchObject({ isReadable: true, record: { plan: 'pro', minute: 7, name: 'good' } });
    expect(entryOf?.record.expiresAt).toBeUndefined();
    expect(entryOf?.rejected?.map(({ field }) => field)).toEqual(['plan', 'minute', 'expires_at', 'name']);
    await keys.change(id, () => ({ record: { name: 'new' } }));
    expect((await keys.get(id))?.record).toMatchObject({ plan: 'pro', minute: 7, name: 'new' });
  });

  test('make a change that narrows a key or a secret with the room that is reserved, and no other', async () => {
    const made: unknown[] = [];
    const storage = await open();
    const noting = withOwn(storage, {
      change: async (change) => {
        made.push(change.isUrgent);
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

  test('write the built-in plans only where nothing was ever stored', async () => {
    const storage = await open();
    const plans = new Plans(storage);
    await plans.begin();
    const builtIn = storedPlans(DEFAULT_PLANS);
    expect(await plans.read()).toMatchObject(builtIn);
    const about = {
      author: 'ann',
      reason: '',
      action: 'set',
      entriesFor: () => [entry('plan.change', 'free')],
    } as const;
    expect(await plans.change(() => ({ 'free.minute': '120' }), about)).toBeDefined();
    await deletePlans(storage);
    await plans.begin();
    expect((await plans.read())?.['free.minute']).toBeUndefined();
    await plans.writeBack(undefined);
    expect((await madeBy(storage, 'gateway')).map(({ action }) => action)).toEqual(Array(4).fill('plan.change'));
    expect((await plans.read())?.['free.minute']).toBe('120');
    await plans.acceptEdit();
    expect(await madeBy(storage, 'by hand')).toEqual([]);
  });

  test('write a table that was deleted back from what is kept, whatever a gateway has in its cache', async () => {
    const storage = await open();
    const plans = new Plans(storage);
    await plans.begin();
    const about = { author: 'ann', reason: '', action: 'set', entriesFor: () => [] } as const;
    const old = (await plans.read()) ?? {};
    await plans.change(() => ({ 'free.minute': '77' }), about);
    const bad = { record: 'plans', set: { 'free.minute': 'abc' } } as const;
    await storage.change({ parts: [bad], entries: [] });
    await plans.acceptEdit();
    for (let time = 1; time <= 2; time++) {
      await deletePlans(storage);
      await plans.writeBack(old);
      expect(await madeBy(storage, 'gateway')).toHaveLength(4 * time);
    }
    expect([(await plans.read())?.['free.minute'], (await plans.readKept())?.['free.minute']]).toEqual(['77', '77']);
  });

  test('write the last good table back where a part of what was kept is lost too', async () => {
    const storage = await open();
    const plans = new Plans(storage);
    await plans.begin();
    const last = { ...(await plans.read()), 'free.minute': '77' };
    await deletePlans(storage);
    await storage.change({ parts: [{ record: 'plans:kept', set: { 'free.minute': undefined } }], entries: [] });
    await plans.writeBack(undefined);
    expect(await plans.read()).toBeUndefined();
    await plans.writeBack(last);
    expect((await plans.read())?.['free.minute']).toBe('77');
  });

  test('refuse a backed-up key that lies in the future, and back up one whose creation cannot be read', async () => {
    const storage = await open();
    const { keys, id } = await withKey(storage);
    await storage.change({ parts: [{ record: `key:${id}`, set: { created_at: 'soon' } }], entries: [] });
    const [backedUp] = (await keys.export({ after: undefined, limit: 10 })).keys as [BackedUpKey];
    const other = { ...backedUp, id: createApiKey().credential.id };
    const future = { ...other, fields: { ...other.fields, created_at: '9999999999' } };
    expect(await keys.restore([future])).toEqual([{ refused: 'created_at lies in the future.' }]);
    expect(await keys.restore([other])).toEqual(['restored']);
  });

  test('record an edit of the plans by hand once, and a bad value too', async () => {
    const storage = await open();
    const plans = new Plans(storage);
    await plans.begin();
    const type = (text: string) =>
      storage.change({ parts: [{ record: 'plans', set: { 'pro.minute': text } }], entries: [] });
    await type('301');
    await Promise.all([plans.acceptEdit(), new Plans(storage).acceptEdit()]);
    expect(await madeBy(storage, 'by hand')).toMatchObject([{ target: 'pro', changes: [{ from: '300', to: '301' }] }]);
    await type('many');
    for (let time = 0; time < 2; time++) await plans.acceptEdit();
    expect(await madeBy(storage, 'by hand')).toHaveLength(2);
    expect((await plans.readKept())?.['pro.minute']).toBe('301');
    expect((await plans.history(10)).map(({ changes }) => changes[0]?.to)).toEqual(['many', '301']);
  });

  test('forget a mode that was removed by hand, and record an edit without what was recorded before', async () => {
    const storage = await open();
    const plans = new Plans(storage);
    await plans.begin();
    const edited = async (set: Record<string, string | undefined>) => {
      const before = await madeBy(storage, 'by hand');
      await storage.change({ parts: [{ record: 'plans', set }], entries: [] });
      await plans.acceptEdit();
      const after = await madeBy(storage, 'by hand');
      return after.slice(0, after.length - before.length).map(({ changes }) => changes);
    };
    expect(await edited({ 'free.mode': 'shadow' })).toEqual([[{ field: 'free.mode', from: 'enforce', to: 'shadow' }]]);
    expect(await edited({ 'free.mode': undefined })).toEqual([[{ field: 'free.mode', from: 'shadow', to: 'enforce' }]]);
    expect(await edited({ 'free.day': undefined })).toEqual([[{ field: 'free.day', from: '1000' }]]);
    expect(await edited({ 'free.minute': '61' })).toEqual([[{ field: 'free.minute', from: '60', to: '61' }]]);
    const about = { author: 'ann', reason: '', action: 'set', entriesFor: () => [] } as const;
    await plans.change(() => ({ 'free.minute': '62' }), about);
    expect((await plans.history(9)).map(({ changes }) => changes.length)).toEqual([1, 1, 1, 1, 1]);
    await deletePlans(storage);
    await plans.writeBack(undefined);
    const { 'free.mode': mode, 'free.day': day, 'free.minute': minute } = (await plans.read()) ?? {};
    expect([mode, day, minute]).toEqual([undefined, '1000', '62']);
  });

  test('make a change of plans anew if another one came first', async () => {
    const storage = await open();
    const plans = new Plans(storage);
    await plans.begin();
    const about = { author: 'ann', reason: '', action: 'set', entriesFor: () => [] } as const;
    const raise = ({ 'free.minute': minute }: StoredPlans) => ({ 'free.minute': String(Number(minute) + 1) });
    await Promise.all(Array.from({ length: 5 }, () => plans.change(raise, about)));
    expect((await plans.read())?.['free.minute']).toBe('65');
    expect(await plans.history(10)).toHaveLength(5);
    expect(await plans.change(() => ({}), about)).toBeUndefined();
  });

  test('find tokens until they are revoked', async () => {
    const storage = await open();
    const tokens = new Tokens(storage);
    const token = { name: 'ann', role: 'viewer', createdAt: '2026-01-01T00:00:00Z', digest: 'a'.repeat(64) } as const;
    await tokens.create('one', token, entry('token.create', 'one'));
    expect([await tokens.find('one'), (await tokens.list()).size]).toEqual([token, 1]);
    expect(await tokens.remove('one', () => entry('token.revoke', 'one'))).toBe(true);
    expect(await tokens.remove('one', () => entry('token.revoke', 'one'))).toBe(false);
    expect(await actionsIn(storage, 'one')).toEqual(['token.revoke', 'token.create']);
  });

  /** What operators do, with what is there afterwards. Each can be repeated after a fault. */
  const DEEDS = {
    async issue(storage: Storage, sound: Storage) {
      const { id, digest } = createApiKey().credential;
      const isThere = async () => (await new Keys(sound).get(id)) !== undefined;
      const deed = () => new Keys(storage).create(id, recordWith(digest), entry('key.create', id));
      return { deed, isThere, entries: () => actionsIn(sound, id) };
    },
    async change(storage: Storage, sound: Storage) {
      const { id } = await withKey(sound);
      const isThere = async () => (await new Keys(sound).get(id))?.record.name === 'changed';
      const deed = () =>
        new Keys(storage).change(id, ({ name }) => ({
          record: { name: 'changed' },
          activity: name === 'changed' ? undefined : entry('key.change', id),
        }));
      return { deed, isThere, entries: async () => (await actionsIn(sound, id)).slice(0, -1) };
    },
    async revoke(storage: Storage, sound: Storage) {
      const { id } = await withKey(sound);
      const isThere = async () => (await new Keys(sound).get(id)) === undefined;
      const deed = () => new Keys(storage).remove(id, entry('key.revoke', id));
      return { deed, isThere, entries: async () => (await actionsIn(sound, id)).slice(0, -1) };
    },
    async restore(storage: Storage, sound: Storage) {
      const { id } = await withKey(sound);
      const { keys } = await new Keys(sound).export({ after: undefined, limit: 100 });
      const moved = { ...keys.find((one) => one.id === id), id: createApiKey().credential.id } as BackedUpKey;
      const isThere = async () => (await new Keys(sound).get(moved.id)) !== undefined;
      const deed = () => new Keys(storage).restore([moved], (key) => entry('key.restore', key));
      return { deed, isThere, entries: () => actionsIn(sound, moved.id) };
    },
    async plan(storage: Storage, sound: Storage) {
      await new Plans(sound).begin();
      const about = {
        author: 'ann',
        reason: '',
        action: 'set',
        entriesFor: () => [entry('plan.change', 'free')],
      } as const;
      const isThere = async () => (await new Plans(sound).read())?.['free.minute'] === '77';
      const deed = () => new Plans(storage).change(() => ({ 'free.minute': '77' }), about);
      return { deed, isThere, entries: () => actionsIn(sound, 'free') };
    },
    async token(storage: Storage, sound: Storage) {
      const token = { name: 'ann', role: 'viewer', createdAt: '2026-01-01T00:00:00Z', digest: 'a'.repeat(64) } as const;
      const isThere = async () => (await new Tokens(sound).find('one')) !== undefined;
      const deed = () => new Tokens(storage).create('one', token, entry('token.create', 'one'));
      return { deed, isThere, entries: () => actionsIn(sound, 'one') };
    },
  };

  const FAULTS = Object.keys(DEEDS).flatMap((name) =>
    (['before', 'behind'] as const).map((when) => [name as keyof typeof DEEDS, when] as const),
  );

  test.for(FAULTS)('%s with a fault %s any step: it is made with its entry, or neither', async ([name, when]) => {
    for (let nth = 1; ; nth++) {
      const sound = await open();
      const failing = failingAt(sound, nth, when);
      const { deed, isThere, entries } = await DEEDS[name](failing, sound);
      const fault = await deed().then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      if (failing.hasFailed()) expect(fault).toBeInstanceOf(MadeFault);
      expect(await entries()).toHaveLength((await isThere()) ? 1 : 0);
      if (!failing.hasFailed()) break;
      await deed().catch(() => undefined);
      expect([await isThere(), (await entries()).length]).toEqual([true, 1]);
    }
  });
});
