import { readFile, writeFile } from 'node:fs/promises';
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { startCore } from '../../core/core.ts';
import { cleanUp } from '../support/clean-up.ts';
import { readableLog } from '../support/log.ts';
import { freePort } from '../support/port.ts';
import { startPostgres } from '../support/postgres.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

/** @returns the error of a core that cannot start with this database */
async function faultOf(DATABASE_URL: string): Promise<string> {
  const settings = readCoreSettings({ DATABASE_URL, PORT: '0' });
  return await startCore(settings, readableLog().logger).then(
    () => 'It starts.',
    ({ message }: Error) => message,
  );
}

/** Starts a PostgreSQL with a user that needs a password and has no permissions. */
async function startLocked(): Promise<URL> {
  const postgres = await startPostgres();
  cleanUp(postgres.stop);
  const client = new pg.Client(postgres.url);
  await client.connect();
  await client.query("CREATE ROLE locked LOGIN PASSWORD 'right-secret'");
  await client.query('REVOKE CREATE ON SCHEMA public FROM PUBLIC');
  const { rows } = await client.query<{ hba_file: string }>('SHOW hba_file');
  const path = rows[0]?.hba_file ?? '';
  await writeFile(path, `host all locked 127.0.0.1/32 scram-sha-256\n${await readFile(path, 'utf8')}`);
  await client.query('SELECT pg_reload_conf()');
  await client.end();
  return new URL(postgres.url);
}

describe('a core that cannot use its PostgreSQL reports the reason', async () => {
  const { port } = await startLocked();
  const nobody = await freePort();
  const url = (user: string, rest = 'postgres', at = port) => `postgres://${user}@127.0.0.1:${at}/${rest}`;

  test.for([
    ['nothing is listening there', url('test:right-secret', 'postgres', String(nobody)), 'nothing is listening there.'],
    ['the host is unknown', 'postgres://test:right-secret@database.invalid/postgres', /^.* host .*\.$/],
    ['the password is wrong', url('locked:wrong-secret'), 'password authentication failed for user "locked".'],
    ['the database does not exist', url('test', 'none'), 'database "none" does not exist.'],
    ['it has no TLS', url('test', 'postgres?sslmode=require'), 'The server does not support SSL connections.'],
    ['the user may not create tables', url('locked:right-secret'), 'permission denied for schema public.'],
  ] as const)('%s', async ([, database, reason]) => {
    const fault = await faultOf(database);
    const { hostname, port: at = '', pathname } = new URL(database);
    const place = `PostgreSQL at ${hostname}:${at || 5_432}, database ${pathname.slice(1)}`;
    const beginning = `DATABASE_URL: ${place}, cannot be used: `;
    expect(fault.slice(0, beginning.length)).toBe(beginning);
    const said = fault.slice(beginning.length);
    if (typeof reason === 'string') expect(said).toBe(reason);
    else expect(said).toMatch(reason);
    expect(fault).not.toContain('secret');
  });
});

test('a core with a file that is not an SQLite database reports its path and exits with 1', async () => {
  const path = `${await temporaryFolder()}/store.db`;
  await writeFile(path, 'no database, but long enough to be taken for one'.repeat(100));
  const environment = { PORT: '0', DATABASE_URL: `sqlite:${path}` };
  const { code, out, err } = await startProcess(process.execPath, ['core/main.ts'], environment).ended;
  const said = `DATABASE_URL: the SQLite file ${path} cannot be used: file is not a database.\n`;
  expect({ code, out, err }).toEqual({ code: 1, out: '', err: said });
});
