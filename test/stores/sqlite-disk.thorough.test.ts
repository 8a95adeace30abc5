import { once } from 'node:events';
import { cp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, type TestContext, test } from 'vitest';
import { type SqliteOptions, SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';
import { type Change, NotMade, type Part, type RecordName, type Urgency } from '../../gateway/stores/storage.ts';
import { cleanUp } from '../support/clean-up.ts';
import { startProcess } from '../support/process.ts';
import { smallDisk } from '../support/small-disk.ts';
import { temporaryFolder } from '../support/stack.ts';

const FULL = 'The disk that holds DATA_DIR is full.';
const KEYS = 500;

async function diskFor({ skip }: TestContext, megabytes = 8) {
  return (await smallDisk(megabytes)) ?? skip('This process is not allowed to mount a file system.');
}

function open(folder: string, options: SqliteOptions = {}): SqliteStorage {
  const storage = new SqliteStorage(folder, { probeMs: 50, ...options });
  cleanUp(() => storage.close());
  return storage;
}

const entry = (action: string) => [{ log: 'audit' as const, fields: { action, text: 'x'.repeat(300) } }];

const changing = (id: number, action: string, part: Omit<Part, 'record'>, urgency?: Urgency): Change => ({
  parts: [{ record: `key:${id}`, ...part }],
  entries: entry(action),
  urgency,
});

const rename = (id: number, name: string) =>
  changing(id, 'change', { set: { name, created_at: String(id), more: 'x'.repeat(500) } });

const revoke = (id: number) => {
  const moveTo = { record: `revoked:${id}`, fields: ['name', 'created_at'], seconds: 1e6 } as const;
  return changing(id, 'revoke', { exists: true, moveTo }, 'revocation');
};

const disable = (id: number) => changing(id, 'disable', { exists: true, set: { disabled: '1' } }, 'revocation');

const ban = (id: number, until: number) =>
  changing(id, 'ban', { exists: true, set: { banned_until: String(until) } }, 'ban');

const bySystem = { message: FULL, shown: `The change was not made. ${FULL}` };

/** Mounts a disk and opens a storage with keys on it. */
async function diskWithKeys(context: TestContext, megabytes?: number) {
  const disk = await diskFor(context, megabytes);
  const folder = join(disk.folder, 'data');
  const storage = open(folder);
  await Promise.all(Array.from({ length: KEYS }, (_, id) => storage.change(rename(id, 'first'))));
  return { disk, folder, storage };
}

/** @returns the number of changes that were made before one failed */
async function untilRefused(storage: SqliteStorage): Promise<number> {
  for (let made = 0; ; made++) {
    const fault = await storage.change(rename(made, 'second')).catch((reason: unknown) => reason);
    if (fault === true) continue;
    expect(fault).toBeInstanceOf(NotMade);
    return made;
  }
}

/** If the log is too large to be merged using only the reserved space, it stays in use and grows with every change. */
test.for([
  { name: 'small keys', before: [1_000, 1_000], whileFull: [1_000, 900], revoked: 300 },
  { name: 'large keys', before: [1_000, 12_000], whileFull: [1_000, 8_000], revoked: 25 },
  { name: 'keys, many of which are only in the log', before: [700, 2_000], whileFull: [0, 0], revoked: 300 },
] as const)('on a disk full of $name, keys can be revoked one by one', async (sample, context) => {
  const disk = await diskFor(context, 64);
  const storage = open(join(disk.folder, 'data'));
  let from = 0;
  const create = async ([count, size]: readonly [number, number]) => {
    const ids = Array.from({ length: count }, () => from++);
    const set = { more: 'x'.repeat(size) };
    await Promise.allSettled(ids.map((id) => storage.change(changing(id, 'create', { set }))));
  };
  await create(sample.before);
  await disk.fill();
  await create(sample.whileFull);
  const created = await storage.countKeys();
  expect(await storage.listKeys({ limit: from })).toHaveLength(created);
  for (let id = 0; id < sample.revoked; id++) expect(await storage.change(revoke(id)), `key ${id}`).toBe(true);
  expect(await storage.countKeys()).toBe(created - sample.revoked);
});

test('on a full disk, a key can be revoked after any number of bans', async (context) => {
  const { disk, storage } = await diskWithKeys(context, 16);
  await disk.fill();
  await untilRefused(storage);
  let made = 0;
  while (made < 20_000 && (await storage.change(ban(1, made)).catch(() => false))) made += 1;
  expect([made > 100, made < 20_000]).toEqual([true, true]);
  const newest = await storage.tail('audit', { count: 1_000 });
  for (let id = 0; id < KEYS; id++) expect(await storage.change(revoke(id)), `key ${id}`).toBe(true);
  // Old audit entries were removed, but not the newest thousand.
  const kept = await storage.tail('audit', { count: 1_000 });
  expect(kept.slice(KEYS)).toEqual(newest.slice(0, 1_000 - KEYS));
});

test('on a full disk, a revocation is made, and other changes in the same turn are not', async (context) => {
  const { disk, folder, storage } = await diskWithKeys(context);
  await disk.fill();
  const large = Array.from({ length: 100 }, (_, at) => storage.change(rename(KEYS + at, 'x'.repeat(30_000))));
  const made = await Promise.allSettled([...large, storage.change(revoke(1))]);
  expect(made.at(-1)).toEqual({ status: 'fulfilled', value: true });
  expect(made.slice(0, -1)).toMatchObject(Array(100).fill({ status: 'rejected', reason: bySystem }));
  expect(await storage.countKeys()).toBe(KEYS - 1);
  await expect(storage.change({ parts: [], entries: entry('refused') })).rejects.toMatchObject(bySystem);
  // Most of the reserved space is kept.
  expect((await stat(join(folder, 'reserve'))).size).toBeGreaterThan(100_000);
});

test.for([
  ['at once', 0],
  ['after many changes', 40],
] as const)(
  'keys can be revoked and disabled while another process fills the disk, %s',
  async ([, changes], context) => {
    const { disk, folder, storage } = await diskWithKeys(context, 16);
    for (let id = 0; id < changes; id++) await storage.change(rename(id, 'second'));
    await disk.keepFull();
    for (let id = 0; id < 100; id++) expect(await storage.change(revoke(id)), `key ${id}`).toBe(true);
    const refused = async () => await storage.change(rename(KEYS - 2, 'second')).catch((fault: unknown) => fault);
    await expect.poll(refused, { interval: 0 }).toMatchObject(bySystem);
    const others = Array.from({ length: 300 }, (_, at) => storage.change(disable(100 + at)));
    expect(await Promise.all(others)).toEqual(Array(300).fill(true));
    await storage.save([['401', { banned_until: '9' }]], true);
    await storage.close();
    // The next start finds no free space either.
    await (await open(folder)).close();
    const next = open(folder);
    expect(next.fault()).toBe(FULL);
    // The other process may have taken the space that the close released, in which case no change is made.
    for (let id = 480; id < KEYS; id++) {
      const revoked = await next.change(revoke(id)).catch((fault: unknown) => fault);
      if (revoked === true) expect(await next.read(`key:${id}`)).toBeUndefined();
      else expect(revoked).toMatchObject(bySystem);
    }
    expect(await next.readMany([`key:99`, `revoked:99`, 'key:399', 'key:401'])).toMatchObject([
      undefined,
      { revoked: '1' },
      { disabled: '1' },
      { banned_until: '9' },
    ]);
  },
);

test('if the log cannot be merged, a stop on a full disk loses nothing and keeps the reserved space', async (context) => {
  const { disk, folder, storage } = await diskWithKeys(context, 16);
  await disk.fill(2_000_000);
  const set = { more: 'x'.repeat(95_000) };
  const ids = Array.from({ length: 28 }, (_, at) => KEYS + at);
  const made = await Promise.all(ids.map((id) => storage.change(changing(id, 'create', { set }))));
  expect(made).toEqual(ids.map(() => true));
  await disk.fill();
  await untilRefused(storage);
  for (let id = 400; id < 420; id++) expect(await storage.change(revoke(id)), `key ${id}`).toBe(true);
  const reserved = (await stat(join(folder, 'reserve'))).size;
  await storage.close();
  expect((await stat(join(folder, 'gateway.db-wal'))).size).toBeGreaterThan(1_048_576);
  await disk.fill();

  const next = open(folder);
  expect((await stat(join(folder, 'reserve'))).size).toBe(reserved);
  expect(await next.readMany(ids.map((id) => `key:${id}` as const))).toMatchObject(ids.map(() => set));
  for (let id = 400; id < 420; id++) expect(await next.read(`key:${id}`)).toBeUndefined();
  await disk.free();
  await expect.poll(() => next.fault()).toBeUndefined();
});

test('bans remain possible across restarts on a disk that another process fills', async (context) => {
  let { disk, folder, storage } = await diskWithKeys(context, 16);
  await disk.fill();
  await untilRefused(storage);
  for (let round = 0; round < 10; round++) {
    await disk.fill();
    await storage.close();
    await disk.fill();
    storage = open(folder);
    expect(await storage.change(ban(round, 9))).toBe(true);
    expect(await storage.change(revoke(100 + round))).toBe(true);
  }
});

test('states that are handed over on a full disk are saved once there is space', async (context) => {
  const { disk, folder, storage: before } = await diskWithKeys(context);
  await before.close();
  const owner = {
    release: async (id: string) => void storage.save([[id, { admitted: '7' }]], true),
    flush: async () => void storage.save([['2', { admitted: '5' }]], false),
  };
  const storage = open(folder, { owner });
  await disk.fill();
  await expect(storage.change(rename(1, 'x'.repeat(500_000)))).rejects.toMatchObject(bySystem);
  expect(await storage.load('1')).toMatchObject({ name: 'first', admitted: '7' });
  expect(await storage.read('key:2')).toMatchObject({ admitted: '5' });
  await storage.save([['3', { admitted: '3' }]], false);
  await disk.free();
  await expect.poll(() => storage.fault()).toBeUndefined();
  expect((await stat(join(folder, 'reserve'))).size).toBe(1_048_576);
  await expect
    .poll(() => storedNow(folder, ['key:1', 'key:2', 'key:3']))
    .toMatchObject([{ admitted: '7' }, { admitted: '5' }, { admitted: '3' }]);
});

/** The records that a start would read if the process were killed now. */
async function storedNow(folder: string, records: readonly RecordName[]): Promise<readonly unknown[]> {
  const copy = await temporaryFolder();
  for (const name of ['gateway.db', 'gateway.db-wal']) await cp(join(folder, name), join(copy, name));
  const storage = new SqliteStorage(copy);
  const stored = await storage.readMany(records);
  await storage.close();
  return stored;
}

test('after a start on a full disk without reserved space, the stored data is in force', async (context) => {
  const { disk, folder, storage: before } = await diskWithKeys(context);
  await before.close();
  await rm(join(folder, 'reserve'));
  await disk.fill();
  const storage = open(folder);
  expect(storage.fault()).toBe(FULL);
  const keys = await storage.readMany(Array.from({ length: KEYS }, (_, id) => `key:${id}` as const));
  expect(keys.map((key) => key?.name)).toEqual(Array(KEYS).fill('first'));
  await expect(storage.change(rename(0, 'refused'))).rejects.toMatchObject(bySystem);
});

test('in a read-only folder, all acknowledged data is in force, changes are refused, and no copy is left behind', async (context) => {
  const disk = await diskFor(context);
  const folder = join(disk.folder, 'data');
  const writer = startProcess(process.execPath, ['test/support/sqlite-writer.ts', folder, '1'], {});
  await once(writer.child.stdout as NodeJS.ReadableStream, 'data');
  await expect.poll(() => writer.out()).toContain('ban 20\n');
  writer.child.kill('SIGKILL');
  await writer.ended;
  expect((await stat(join(folder, 'gateway.db-wal'))).size).toBeGreaterThan(0);
  const acknowledged = writer.out().match(/(?<=revoke )\d+/g) ?? [];
  await disk.remount('ro');

  const storage = open(folder);
  expect(storage.fault()).toBe('DATA_DIR is read-only.');
  for (const id of acknowledged)
    expect(await storage.readMany([`key:${id}`, `revoked:${id}`])).toMatchObject([undefined, { revoked: '1' }]);
  expect(await storage.read('key:20')).toEqual({ created_at: '20', one: 'updated', two: 'updated', banned_until: '1' });
  const refusal = { shown: 'The change was not made. DATA_DIR is read-only.' };
  await expect(storage.change(revoke(1))).rejects.toMatchObject(refusal);
  await expect(storage.change({ parts: [], entries: entry('x') })).rejects.toMatchObject(refusal);
  await storage.save([['20', { admitted: '12' }]], true);
  expect(await storage.load('20')).toMatchObject({ admitted: '12' });
  const copies = [...(await readdir('/dev/shm')), ...(await readdir(tmpdir()))];
  expect(copies.filter((name) => name.startsWith(`gateway-${process.pid}-`))).toEqual([]);
  await storage.close();

  await disk.remount('rw');
  const next = open(folder);
  expect(next.fault()).toBeUndefined();
  expect(await next.load('20')).not.toHaveProperty('admitted');
  expect(await next.change(rename(1, 'new'))).toBe(true);
});

test('a gateway on a read-only folder without a lock locks the folder once it is writable, or exits if another gateway has', async (context) => {
  const { disk, folder, storage: before } = await diskWithKeys(context);
  await before.close();
  await rm(join(folder, 'lock'));
  await disk.remount('ro');
  const reader = () => startProcess(process.execPath, ['test/support/sqlite-writer.ts', folder], {});
  const [first, second] = [reader(), reader()];
  await expect.poll(() => [first.out(), second.out()]).toEqual(['open\n', 'open\n']);
  await disk.remount('rw');
  const { err } = await Promise.race([first.ended, second.ended]);
  const [holder] = [first, second].filter(({ child }) => child.exitCode === null);
  const inUse = `is in use by another gateway, process ${holder?.child.pid}.`;
  expect(err).toContain(inUse);
  expect(() => new SqliteStorage(folder)).toThrow(inUse);
});

test('a start without stored data fails with the reason if no data can be stored', async (context) => {
  const disk = await diskFor(context);
  const folder = join(disk.folder, 'data');
  await disk.fill();
  expect(() => new SqliteStorage(disk.folder)).toThrow(`holds no database, and none can be created. ${FULL}`);
  await disk.remount('ro');
  expect(() => new SqliteStorage(folder)).toThrow('cannot be created. DATA_DIR is read-only.');
  expect(() => new SqliteStorage(disk.folder)).toThrow('holds no database, and none can be created. DATA_DIR is read-');
});

test('a damaged database is not replaced by an empty one', async () => {
  const folder = await temporaryFolder();
  await writeFile(join(folder, 'gateway.db'), 'x'.repeat(8_192));
  expect(() => new SqliteStorage(folder)).toThrow('gateway.db is damaged. Restore a backup.');
});
