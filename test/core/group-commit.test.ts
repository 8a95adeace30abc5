import { copyFile, rename, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync, StatementSync } from 'node:sqlite';
import { expect, test, vi } from 'vitest';
import { insertPet } from '../../core/store/queries.ts';
import { SqliteStore } from '../../core/store/sqlite.ts';
import { query, type Transaction } from '../../core/store/store.ts';
import { OutcomeUnknown, Unavailable } from '../../shared/domain-errors.ts';
import { temporaryFolder } from '../support/stack.ts';

const rex = { name: 'Rex', categoryId: 1n, status: 'available' } as const;

function* insertThenFail(): Transaction<void> {
  yield* insertPet(rex);
  throw new Error('on purpose');
}

test('all writes of one event loop turn share a commit, and only a failed write is rolled back', async () => {
  const commits: number[] = [];
  const store = new SqliteStore(`${await temporaryFolder()}/store.db`, (count) => commits.push(count));
  const writes = [
    ...Array.from({ length: 10 }, () => store.write(() => insertPet(rex))),
    store.write(insertThenFail),
    store.write(() => query('INSERT INTO pets (name) VALUES ($1)', 'incomplete')),
    ...Array.from({ length: 10 }, () => store.write(() => insertPet(rex))),
  ];
  const results = await Promise.allSettled(writes);
  expect(commits).toEqual([22]);
  expect(results.filter(({ status }) => status === 'rejected')).toMatchObject([
    { reason: { message: 'on purpose' } },
    { reason: { code: 'ERR_SQLITE_ERROR' } },
  ]);
  expect(await store.read(() => query('SELECT COUNT(*) AS n FROM pets'))).toEqual([{ n: 20n }]);
  await store.close();
});

test('a failed commit fails all of its writes, and the next commit succeeds', async () => {
  const folder = await temporaryFolder();
  const store = new SqliteStore(`${folder}/store.db`);
  const locking = new DatabaseSync(`${folder}/store.db`);
  locking.exec('BEGIN IMMEDIATE');
  const refused = await Promise.allSettled([store.write(() => insertPet(rex)), store.write(() => insertPet(rex))]);
  expect(refused).toMatchObject(Array(2).fill({ status: 'rejected', reason: expect.any(Unavailable) }));
  locking.exec('COMMIT');
  locking.close();
  expect(await store.write(() => insertPet(rex))).toEqual({ id: 1n, ...rex });
  await store.close();
  const reopened = new SqliteStore(`${folder}/store.db`);
  expect(await reopened.read(() => query('SELECT id FROM pets'))).toEqual([{ id: 1n }]);
  await reopened.close();
});

test.for([
  ['a sync', 1034, OutcomeUnknown],
  ['a write', 778, Unavailable],
] as const)(
  'if %s fails during a commit (code %i), its writes fail with the right error',
  async ([, errcode, expected]) => {
    const store = new SqliteStore(`${await temporaryFolder()}/store.db`);
    const commit = vi.spyOn(StatementSync.prototype, 'run').mockImplementation(function (this: StatementSync) {
      if (this.sourceSQL === 'COMMIT') throw Object.assign(new Error('disk I/O error'), { errcode });
      this.all();
      return { changes: 0, lastInsertRowid: 0 };
    });
    const fault = await store.write(() => insertPet(rex)).catch((thrown: unknown) => thrown);
    commit.mockRestore();
    expect((fault as Error).constructor).toBe(expected);
    expect(await store.write(() => insertPet(rex))).toEqual({ id: 1n, ...rex });
    await store.close();
  },
);

test.for([
  ['removed', 'store.db'],
  ['replaced', 'store.db'],
  ['removed', 'store.db-wal'],
] as const)(
  'after the database file was %s (%s), no write is acknowledged, but pets can be read',
  async ([how, name]) => {
    const folder = await temporaryFolder();
    const store = new SqliteStore(`${folder}/store.db`);
    await store.write(() => insertPet(rex));
    const file = `${folder}/${name}`;
    await rename(file, `${file}.away`);
    if (how === 'replaced') await copyFile(`${file}.away`, file);
    const refusal = { message: expect.stringMatching(/^The database file was removed or replaced\./) };
    await expect(store.write(() => insertPet(rex))).rejects.toMatchObject(refusal);
    await expect(store.check()).rejects.toMatchObject(refusal);
    expect(await store.read(() => query('SELECT id FROM pets'))).toEqual([{ id: 1n }]);
    await rename(`${file}.away`, file);
    await store.check();
    expect(await store.write(() => insertPet(rex))).toMatchObject({ id: 2n });
    await store.close();
  },
);

test('waiting writes are made when the store closes', async () => {
  const store = new SqliteStore(`${await temporaryFolder()}/store.db`);
  const writing = store.write(() => insertPet(rex));
  await store.close();
  expect(await writing).toMatchObject({ id: 1n });
});

test('a new database file can be read by its owner only', async () => {
  const folder = join(await temporaryFolder(), 'made', 'by the core');
  const store = new SqliteStore(join(folder, 'store.db'));
  const modes = await Promise.all(
    ['', 'store.db', 'store.db-wal', 'store.db-shm'].map(async (name) => (await stat(join(folder, name))).mode),
  );
  expect(modes.map((mode) => (mode & 0o777).toString(8))).toEqual(['700', '600', '600', '600']);
  await store.close();
});
