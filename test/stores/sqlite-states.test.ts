import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type Owner, SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';
import { type FieldChanges, NotMade } from '../../gateway/stores/storage.ts';
import { cleanUp } from '../support/clean-up.ts';
import { temporaryFolder } from '../support/stack.ts';

/** A process that makes decisions, with the states of keys in its memory. */
class Decider implements Owner {
  storage: SqliteStorage | undefined;
  readonly states = new Map<string, FieldChanges>();
  readonly asked: string[] = [];
  beforeRelease: () => unknown = () => undefined;
  beforeFlush: () => unknown = () => undefined;

  async release(id: string): Promise<void> {
    this.asked.push(id);
    await this.beforeRelease();
    const state = this.states.get(id);
    this.states.delete(id);
    if (state !== undefined) void this.storage?.save([[id, state]], true);
  }

  async flush(): Promise<void> {
    this.asked.push('all');
    this.beforeFlush();
    void this.storage?.save(this.states, false);
  }
}

async function open(): Promise<{ storage: SqliteStorage; decider: Decider }> {
  const decider = new Decider();
  const storage = new SqliteStorage(await temporaryFolder(), { owner: decider });
  decider.storage = storage;
  cleanUp(() => storage.close());
  await storage.change(rename('a', undefined, 'first'));
  decider.asked.length = 0;
  return { storage, decider };
}

const rename = (id: string, from: string | undefined, to: string, set: FieldChanges = {}) => ({
  parts: [{ record: `key:${id}` as const, expect: { name: from }, set: { name: to, ...set } }],
  entries: [],
});

test('a load during a change returns the state that was taken over and the result of the change', async () => {
  const { storage, decider } = await open();
  decider.states.set('a', { admitted: '7', banned_until: '9', bans: '1' });
  const order: string[] = [];
  const lift = rename('a', 'first', 'second', { banned_until: undefined });
  let loaded: Promise<unknown> | undefined;
  decider.beforeRelease = async () => {
    loaded ??= storage.load('a').then((fields) => {
      order.push('loaded');
      return fields;
    });
    for (let turn = 0; turn < 3; turn++) await nextTurn();
    order.push('released');
  };
  const made = [storage.change(lift), storage.change(rename('a', 'second', 'third'))];
  expect(await Promise.all(made)).toEqual([true, true]);
  expect(await loaded).toEqual({ name: 'third', admitted: '7', bans: '1' });
  expect(order).toEqual(['released', 'released', 'loaded']);
  expect(decider.asked).toEqual(['a', 'a']);
});

test('a state that is handed over for a change is kept even if the change is not made', async () => {
  const { storage, decider } = await open();
  decider.states.set('a', { admitted: '7' });
  expect(await storage.change(rename('a', 'other', 'x'))).toBe(false);
  expect(await storage.load('a')).toEqual({ name: 'first', admitted: '7' });
  decider.beforeRelease = () => Promise.reject(new Error('killed'));
  await expect(storage.change(rename('a', 'first', 'x'))).rejects.toThrow(NotMade);
  expect(await storage.load('a')).toEqual({ name: 'first', admitted: '7' });
});

test('a revoked key keeps the counts of its last decisions, and a late state does not restore it', async () => {
  const { storage, decider } = await open();
  decider.states.set('a', { admitted: '8', left: '1 1 1' });
  const moveTo = { record: 'revoked:a' as const, fields: ['admitted'], seconds: 60 };
  await storage.change({ parts: [{ record: 'key:a', exists: true, moveTo }], entries: [] });
  await storage.save([['a', { admitted: '9' }]], true);
  expect(await storage.readMany(['key:a', 'revoked:a'])).toEqual([undefined, { admitted: '8', revoked: '1' }]);
});

test('keys loaded in the same turn of the event loop are returned before their release is requested', async () => {
  const { storage, decider } = await open();
  const order: string[] = [];
  const loaded = storage.load('a').then(() => order.push('loaded'));
  decider.beforeRelease = () => order.push('release');
  await Promise.all([storage.change(rename('a', 'first', 'x')), loaded]);
  expect(order).toEqual(['loaded', 'release']);
});

test("one page of operators' lists is read per turn of the event loop, however many lists are requested", async () => {
  const { storage, decider } = await open();
  let [inTurn, most] = [0, 0];
  decider.beforeFlush = () => {
    inTurn += 1;
    most = Math.max(most, inTurn);
    setImmediate(() => {
      inTurn = 0;
    });
  };
  const readAll = async () => {
    for (let page = 0; page < 5; page++) expect(await storage.readMany(['key:a'])).toEqual([{ name: 'first' }]);
  };
  await Promise.all(Array.from({ length: 10 }, readAll));
  expect({ most, pages: decider.asked.length }).toEqual({ most: 1, pages: 50 });
  decider.beforeFlush = () => {
    throw new Error('away');
  };
  for (let read = 0; read < 2; read++) await expect(storage.readMany(['key:a'])).rejects.toThrow('away');
});
