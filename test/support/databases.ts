import pg from 'pg';
import { inject } from 'vitest';
import { DatabaseUrl } from '../../core/store/database-url.ts';
import { PostgresStore } from '../../core/store/postgres.ts';
import { SqliteStore } from '../../core/store/sqlite.ts';
import type { Store } from '../../core/store/store.ts';
import { cleanUp } from './clean-up.ts';
import { databaseFolder } from './stack.ts';

/** Both kinds of database, each with a function that creates an empty one and returns its DATABASE_URL. */
export const DATABASES: readonly [name: string, empty: () => Promise<string>][] = [
  ['SQLite', async () => `sqlite:${await databaseFolder()}/store.db`],
  ['PostgreSQL', emptyPostgres],
];

/** Opens the store of a DATABASE_URL, as the core does. */
export const openStore = async (url: string): Promise<Store> =>
  url.startsWith('sqlite:')
    ? new SqliteStore(url.slice('sqlite:'.length))
    : await PostgresStore.open(new DatabaseUrl(() => url));

/** Creates a database on the PostgreSQL of the test run, and drops it after the test. */
export async function emptyPostgres(): Promise<string> {
  const administrator = inject('postgresUrl');
  const url = new URL(administrator);
  const name = `test_${process.pid}_${Math.trunc(performance.now() * 1_000)}`;
  await administer(administrator, `CREATE DATABASE ${name}`);
  cleanUp(() => administer(administrator, `DROP DATABASE ${name} WITH (FORCE)`));
  url.pathname = `/${name}`;
  return url.href;
}

async function administer(url: string, sql: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await client.query(sql);
  await client.end();
}
