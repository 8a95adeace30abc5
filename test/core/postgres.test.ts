import { readdirSync, readFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { startCore } from '../../core/core.ts';
import { SettingsError } from '../../shared/process/env.ts';
import { cleanUp } from '../support/clean-up.ts';
import { emptyPostgres } from '../support/databases.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { post, send } from '../support/http.ts';
import { readableLog } from '../support/log.ts';
import { freePort } from '../support/port.ts';
import { startPostgres } from '../support/postgres.ts';
import { ROOT, startProcess, startService } from '../support/process.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';
import { fact, TIMED } from '../support/timed.ts';

/** A server of this file alone, which can be stopped. */
const postgres = await startPostgres();
cleanUp(postgres.stop);

test('two cores that start together on an empty PostgreSQL create its schema once and serve one gateway', async () => {
  const url = await emptyPostgres();
  const environment = { PORT: '0', DATABASE_URL: url, LOG_LEVEL: 'warn' };
  const cores = await Promise.all(Array.from({ length: 2 }, () => startService('core/main.ts', environment)));
  const client = new pg.Client(url);
  await client.connect();
  const { rows } = await client.query('SELECT version FROM migrations ORDER BY version');
  expect(rows).toEqual([{ version: '1' }, { version: '2' }]);
  await client.end();

  const stack = await startStack({ CORE_URL: cores.map(({ addresses }) => addresses.core).join(',') });
  const key = await stack.issueKey();
  const added = await Promise.all(
    Array.from({ length: 20 }, () => post(`${stack.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key })),
  );
  expect(new Set(added.map(({ json }) => (json as { id: number }).id)).size).toBe(20);
  for (const { addresses } of cores) expect((await send(`${addresses.core}/v1/pets?limit=100`)).json).toHaveLength(20);
  for (const { child } of cores) child.kill('SIGINT');
  await Promise.all(cores.map(({ ended }) => ended));
});

describe('if the connection breaks after COMMIT was sent, the client is told to look first', async () => {
  const proxy = await startFaultProxy(await emptyPostgres());
  const stack = await startStack({ DATABASE_URL: proxy.url });
  const [rex, pets, orders] = [{ name: 'Rex', categoryId: 1 }, '/v1/pets', '/v1/store/orders'];
  for (let count = 0; count < 3; count++) await post(stack.core + pets, rex);
  await post(stack.core + orders, { petId: 1 });
  const key = await stack.issueKey();

  async function cutting<T>(act: () => Promise<T>): Promise<T> {
    proxy.set({ kind: 'cut-reply', afterBytes: 0, to: 'COMMIT\0' });
    const result = await act();
    proxy.set({ kind: 'pass' });
    return result;
  }

  test.for([
    ['adding a pet', 'POST', pets, rex],
    ['changing a pet', 'PATCH', `${pets}/2`, { name: 'Max' }],
    ['deleting a pet', 'DELETE', `${pets}/3`, undefined],
    ['placing an order', 'POST', orders, { petId: 2 }],
    ['moving an order', 'PATCH', `${orders}/1`, { status: 'approved' }],
  ] as const)('%s', async ([, method, path, body]) => {
    const toCore = await cutting(() => post(stack.core + path, body, { method }));
    expect([toCore.status, toCore.headers['retry-after']]).toEqual([504, undefined]);
    const message = 'It is not known whether the change was made. Check before you repeat the request.';
    expect(toCore.json).toEqual({ code: 'gateway_timeout', message, status: 504 });
  });

  test('through the gateway', async () => {
    const answer = await cutting(() => post(stack.gateway + pets, rex, { key }));
    expect([answer.status, answer.headers['retry-after']]).toEqual([504, undefined]);
    expect(answer.json).toMatchObject({ code: 'gateway_timeout' });
  });

  test('unless an Idempotency-Key makes it safe to send the request again', async () => {
    const count = async () => ((await send(`${stack.core + pets}?limit=100`)).json as unknown[]).length;
    const before = await count();
    const add = () => post(stack.core + pets, rex, { headers: { 'idempotency-key': 'k1' } });
    const unknown = await cutting(add);
    expect([unknown.status, unknown.headers['retry-after']]).toEqual([503, '1']);
    expect((await add()).status).toBe(201);
    expect(await count()).toBe(before + 1);
  });
});

test.for([
  ['postgres://u:pass#word@host/db', false],
  ['postgres://u:pass/word@host/db', false],
  ['postgres://u:pass?word@host/db', false],
  ['postgres://u:12#34@host/db', false],
  ['postgres://u:12/34@host/db', false],
  ['postgres://u:p%23ss%40w@rd@host/db', true],
  ['postgres://u:pass word@host:5432/db?user=a@b', true],
  ['postgresql://host/db?user=a@b', true],
  ['postgres://u:pass@/db?host=/run/postgresql', true],
  ['postgres://%2Frun%2Fpostgresql/db', true],
] as const)('the database URL %s is accepted: %s', ([DATABASE_URL, isValid]) => {
  const read = () => readCoreSettings({ PORT: 'x', DATABASE_URL });
  const fault =
    'DATABASE_URL: must be a URL in which special characters are percent-encoded, for example # in a password as %23';
  const others = 'The settings are invalid:\n  PORT: must be a whole number from 0 to 65535';
  expect(read).toThrow(new SettingsError(isValid ? others : `${others}\n  ${fault}`));
});

test('the PostgreSQL schema has the same tables and columns as that of SQLite', () => {
  const shape = (database: 'sqlite' | 'postgres') => {
    const folder = join(ROOT, 'core/store/migrations', database);
    return readdirSync(folder).map((name) => [
      name,
      [...readFileSync(join(folder, name), 'utf8').matchAll(/^ {2}(\w+) |(?:TABLE|INDEX) (\w+)/gm)].map(
        ([, column, object]) => column ?? object,
      ),
    ]);
  };
  expect(shape('postgres')).toEqual(shape('sqlite'));
});

/** @returns the error of a core that cannot start with this database */
async function faultOf(DATABASE_URL: string): Promise<string> {
  const settings = readCoreSettings({ DATABASE_URL, PORT: '0' });
  return await startCore(settings, readableLog().logger).then(
    () => 'It starts.',
    ({ message }: Error) => message,
  );
}

/** Adds a user that needs a password and has no permissions. */
async function addLocked(): Promise<URL> {
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
  const { port } = await addLocked();
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

test('a database that cannot store every Unicode text is refused at the start', async () => {
  const at = new URL(await emptyPostgres());
  const client = new pg.Client(at.href);
  await client.connect();
  const name = `latin1_${process.pid}`;
  await client.query(`CREATE DATABASE ${name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`);
  cleanUp(async () => {
    await client.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await client.end();
  });
  at.pathname = `/${name}`;
  expect(await faultOf(at.href)).toMatch(/, database latin1_\d+, cannot be used: its encoding is LATIN1, not UTF8\.$/);
});

test('a core with a file that is not an SQLite database reports its path and exits with 1', async () => {
  const path = `${await temporaryFolder()}/store.db`;
  await writeFile(path, 'no database, but long enough to be taken for one'.repeat(100));
  const environment = { PORT: '0', DATABASE_URL: `sqlite:${path}` };
  const { code, out, err } = await startProcess(process.execPath, ['core/main.ts'], environment).ended;
  const said = `DATABASE_URL: the SQLite file ${path} cannot be used: file is not a database.\n`;
  expect({ code, out, err }).toEqual({ code: 1, out: '', err: said });
});

/** This test is the last one, because it stops the server. */
test(
  'without PostgreSQL, the core immediately returns 503, and it works again when PostgreSQL is back',
  TIMED,
  async () => {
    const stack = await startStack({ DATABASE_URL: postgres.url });
    const pets = `${stack.core}/v1/pets`;
    expect((await post(pets, { name: 'Rex', categoryId: 1 })).status).toBe(201);

    postgres.server?.kill('SIGSTOP');
    const stoppedAt = performance.now();
    const stalled = new Set(
      (await Promise.all(Array.from({ length: 30 }, () => send(pets)))).map(({ status }) => status),
    );
    const stalledMs = performance.now() - stoppedAt;
    await fact(() => expect([...stalled].filter((status) => status !== 200 && status !== 503)).toEqual([]));
    expect(stalledMs).toBeLessThan(2_000);
    postgres.server?.kill('SIGCONT');
    await expect.poll(async () => (await send(pets)).status).toBe(200);

    const client = new pg.Client(postgres.url);
    await client.connect();
    client.on('error', () => {});
    await client.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`,
    );
    await client.end();
    await expect.poll(async () => (await send(pets)).status).toBe(200);

    await postgres.stop();
    const before = performance.now();
    const answer = await send(pets);
    const statusesOf = [
      await post(pets, { name: 'Rex', categoryId: 1 }),
      await send(`${stack.core}/readyz`),
      await send(`${stack.core}/livez`),
    ].map(({ status }) => status);
    const awayMs = performance.now() - before;
    await fact(() => {
      expect([answer.status, answer.headers['retry-after']]).toEqual([503, '1']);
      expect(answer.json).toEqual({ code: 'unavailable', message: expect.any(String), status: 503 });
      expect(statusesOf).toEqual([503, 503, 200]);
    });
    expect(awayMs).toBeLessThan(500);
  },
);
