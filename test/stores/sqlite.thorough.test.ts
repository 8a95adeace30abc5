import { chmod, copyFile, readFile, rename, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, test, vi } from 'vitest';
import { type SqliteOptions, SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';
import { NotMade } from '../../gateway/stores/storage.ts';
import { cleanUp } from '../support/clean-up.ts';
import { damage } from '../support/damaged-database.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

const WRITER = 'test/support/sqlite-writer.ts';

async function open(options: SqliteOptions = {}): Promise<{ storage: SqliteStorage; folder: string }> {
  const folder = await temporaryFolder();
  const storage = new SqliteStorage(folder, options);
  cleanUp(() => storage.close());
  return { storage, folder };
}

const put = (id: string, set: Record<string, string | undefined>) => ({
  parts: [{ record: `key:${id}` as const, set }],
  entries: [{ log: 'audit' as const, fields: { target: id } }],
});

test('the changes in one turn of the event loop share a commit, and only a failed change is rolled back', async () => {
  const { storage } = await open();
  await storage.change(put('first', { name: 'first' }));
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
  const half = {
    parts: [
      { record: 'key:half' as const, set: { name: 'half' } },
      { record: 'key:half' as const, set: { name: 1n as unknown as string } },
    ],
    entries: [],
  };
  const made = await Promise.allSettled([
    ...Array.from({ length: 10 }, (_, at) => storage.change(put(`k${at}`, { name: `${at}` }))),
    storage.change(half),
    storage.change({ parts: [{ record: 'key:first', expect: { name: 'other' }, set: { name: 'x' } }], entries: [] }),
    ...Array.from({ length: 10 }, (_, at) => storage.change(put(`l${at}`, { name: `${at}` }))),
  ]);
  expect(made.map((one) => (one.status === 'fulfilled' ? one.value : 'failed'))).toEqual([
    ...Array(10).fill(true),
    'failed',
    false,
    ...Array(10).fill(true),
  ]);
  expect(exec.mock.calls.filter(([sql]) => sql === 'COMMIT')).toHaveLength(1);
  exec.mockRestore();
  expect(await storage.read('key:half')).toBeUndefined();
  expect(await storage.read('key:first')).toEqual({ name: 'first' });
  expect(await storage.countKeys()).toBe(21);
  expect(await storage.tail('audit', { count: 100 })).toHaveLength(21);
});

test.for([
  ['removed', 'gateway.db'],
  ['replaced', 'gateway.db'],
  ['removed', 'gateway.db-wal'],
  ['replaced by a link to itself', 'gateway.db'],
] as const)('after a database file was %s (%s), no change is made, but all data can be read', async ([how, name]) => {
  const { storage, folder } = await open();
  await storage.change(put('first', { name: 'first' }));
  const file = join(folder, name);
  await rename(file, `${file}.away`);
  if (how === 'replaced') await copyFile(`${file}.away`, file);
  if (how === 'replaced by a link to itself') await symlink(file, file);
  await expect(storage.change({ ...put('first', { name: 'x' }), urgency: 'revocation' })).rejects.toThrow(NotMade);
  expect(storage.fault()).toMatch(how.endsWith('itself') ? /ELOOP/ : /^The database file was removed or replaced\./);
  expect(await storage.read('key:first')).toEqual({ name: 'first' });
  await rename(`${file}.away`, file);
  expect(storage.fault()).toBeUndefined();
  expect(await storage.change(put('first', { name: 'second' }))).toBe(true);
});

test('a change is acknowledged only once it is on disk, not just in a cache of the operating system', async () => {
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
  await open();
  const opened = exec.mock.contexts as DatabaseSync[];
  const database = opened.find((one) => one.location()?.endsWith('gateway.db')) as DatabaseSync;
  expect(database.prepare('PRAGMA synchronous').get()).toEqual({ synchronous: 2 });
  expect(database.prepare('PRAGMA journal_mode').get()).toEqual({ journal_mode: 'wal' });
  exec.mockRestore();
});

test('acknowledged data survives a restart, in files that only the owner can read', async () => {
  const folder = join(await temporaryFolder(), 'made', 'by the gateway');
  const storage = new SqliteStorage(folder);
  await storage.change(put('a', { created_at: '5.25', name: '\u0000 \ud800 "' }));
  await storage.change({ parts: [{ record: 'tokens', set: { t: '{}', __proto__x: 'y' } }], entries: [] });
  const modes = await Promise.all(
    ['', 'gateway.db', 'gateway.db-wal', 'lock', 'reserve'].map(async (name) => (await stat(join(folder, name))).mode),
  );
  expect(modes.map((mode) => (mode & 0o777).toString(8))).toEqual(['700', '600', '600', '600', '600']);
  await storage.close();
  await expect(storage.change(put('b', { name: 'late' }))).rejects.toThrow(NotMade);

  const next = new SqliteStorage(folder);
  cleanUp(() => next.close());
  expect(await next.readMany(['key:a', 'key:b', 'tokens', 'backup'])).toEqual([
    { created_at: '5.25', name: '\u0000 \ud800 "' },
    undefined,
    { t: '{}', __proto__x: 'y' },
    undefined,
  ]);
  expect(await next.listKeys({ limit: 5 })).toEqual([{ createdAt: 5.25, id: 'a' }]);
});

const MINUTE_AGO = -61_000;
const AHEAD = 3_600_000;

test.for([
  ['from over a minute ago', [MINUTE_AGO]],
  ['from a clock that was an hour ahead', [AHEAD]],
  ['from over a minute ago, written after such a clock was set back', [AHEAD, MINUTE_AGO]],
] as const)('an audit entry identical to one %s is not a repetition', async ([, offsets]) => {
  const { storage } = await open();
  const asked = { log: 'audit' as const, fields: { target: 'a', requestId: '1' } };
  const make = () => storage.change({ parts: [], entries: [asked] });
  const now = Date.now();
  const clock = vi.spyOn(Date, 'now');
  for (const offset of offsets) {
    clock.mockReturnValue(now + offset);
    await make();
  }
  clock.mockRestore();
  for (let made = 0; made < 2; made++) await make();
  expect(await storage.tail('audit', { count: 9 })).toHaveLength(offsets.length + 1);
});

test.runIf(process.getuid?.() === 0)(
  'a process that may read the database but not its lock fails to start',
  async () => {
    const { folder, storage } = await open();
    await storage.change(put('a', { name: 'a' }));
    await chmod(folder, 0o755);
    for (const file of ['gateway.db', 'gateway.db-wal']) await chmod(join(folder, file), 0o644);
    const start = async () => (await startProcess(process.execPath, [WRITER, folder], {}, { uid: 65_534 }).ended).err;
    expect(await start()).toContain(`The lock file in DATA_DIR ${folder} cannot be read`);
    await chmod(join(folder, 'lock'), 0o644);
    expect(await start()).toContain(`process ${process.pid}.`);
  },
);

test.runIf(process.getuid?.() === 0)('a start on the private folder of another user names the setting', async () => {
  const { folder, storage } = await open();
  await storage.close();
  const { err } = await startProcess(process.execPath, [WRITER, folder], {}, { uid: 65_534 }).ended;
  expect(err).toContain(`DATA_DIR ${folder} cannot be used. The gateway has no permission to write to DATA_DIR.`);
});

const dangling = join(await temporaryFolder(), 'link');
await symlink(`${dangling}ed`, dangling);
const NOT_MADE = "ENOENT: no such file or directory, mkdir '/proc/none'";

test.for([
  ['core/main.ts', '/proc/none/a', `the SQLite file /proc/none/a/a.db cannot be used: ${NOT_MADE}`],
  ['gateway/main.ts', '/proc/none/a', `/proc/none/a cannot be created. DATA_DIR cannot be written: ${NOT_MADE}`],
  ['core/main.ts', dangling, `the SQLite file ${dangling}/a.db cannot be used: ${dangling} is not a folder`],
  [
    'gateway/main.ts',
    dangling,
    `${dangling} cannot be created. DATA_DIR cannot be written: ${dangling} is not a folder`,
  ],
] as const)('%s exits with the reason if it cannot create %s', async ([main, DATA_DIR, fault]) => {
  const environment = { PORT: '0', ADMIN_PORT: '0', DATA_DIR, DATABASE_URL: `sqlite:${DATA_DIR}/a.db` };
  const setting = main === 'core/main.ts' ? 'DATABASE_URL:' : 'DATA_DIR';
  const { code, err } = await startProcess(process.execPath, [main], environment).ended;
  expect({ code, err }).toEqual({ code: 1, err: `${setting} ${fault}.\n` });
});

test('a start on a database with a damaged index names the damage and releases the folder', async () => {
  const { folder, storage } = await open();
  await storage.change(put('a', { created_at: '1' }));
  await storage.close();
  const path = join(folder, 'gateway.db');
  const sound = await readFile(path);
  await damage(path, 'keys_by_creation');
  const start = () => new SqliteStorage(folder);
  expect(start).toThrow(`${path} is damaged. Restore a backup.`);
  await writeFile(path, sound);
  await start().close();
});

test.for([
  ['zeros', Buffer.alloc(4_096)],
  ['half a page', Buffer.from('SQLite format 3\0')],
] as const)('a lock file that a power cut left with %s can still be locked', async ([, content]) => {
  const folder = await temporaryFolder();
  await writeFile(join(folder, 'lock'), content);
  const storage = new SqliteStorage(folder);
  cleanUp(() => storage.close());
  const { err } = await startProcess(process.execPath, [WRITER, folder], {}).ended;
  expect(err).toContain(`process ${process.pid}.`);
});
