import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { DATABASES, emptyPostgres, openStore } from '../support/databases.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { post, send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { startService } from '../support/process.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

const REX = { name: 'Rex', categoryId: 1 };
const readiness = async (stack: Stack) => (await send(`${stack.core}/readyz`)).status;

async function onPostgres(url: string, ...statements: string[]): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  for (const sql of statements) await client.query(sql);
  await client.end();
}

describe('a request that PostgreSQL fails gets an error, and the cause is logged', async () => {
  const url = await emptyPostgres();
  const stack = await startStack({ DATABASE_URL: url });
  const counted = async (kind: string) => (await scrape(stack.core)).sum('core_store_errors_total', { kind }) ?? 0;

  test.for([
    ['a full disk', '53100', 503],
    ['too little memory', '53200', 503],
    ['a statement that takes too long', '57014', 503],
    ['a disk failure', '58030', 503],
    ['a read-only database', '25006', 503],
    ['a serialization failure', '40001', 503],
    ['a deadlock', '40P01', 503],
    ['an invalid statement', '42703', 500],
  ] as const)('on %s (code %s), it is a %i', async ([, code, status]) => {
    await onPostgres(
      url,
      `CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'by the test' USING ERRCODE = '${code}'; END $$`,
      'DROP TRIGGER IF EXISTS fail ON pets',
      'CREATE TRIGGER fail BEFORE INSERT ON pets EXECUTE FUNCTION fail()',
    );
    const kind = status === 503 ? 'unavailable' : 'failed';
    const before = await counted(kind);
    const answer = await post(`${stack.core}/v1/pets`, REX, { headers: { 'x-request-id': code } });
    expect([answer.status, answer.headers['retry-after']]).toEqual([status, status === 503 ? '1' : undefined]);
    const line = stack.coreLog.find(({ requestId }) => requestId === code);
    const { code: sent } = answer.json as { code: string };
    expect(line).toMatchObject({ msg: 'request', operation: 'createPet', status, code: sent });
    expect(JSON.stringify(line)).toContain('by the test');
    expect(await counted(kind)).toBe(before + 1);
    expect((await send(`${stack.core}/v1/pets`)).status).toBe(200);
  });
});

test('a stricter default isolation of PostgreSQL makes no concurrent request fail', async () => {
  const url = await emptyPostgres();
  await onPostgres(
    url,
    `ALTER DATABASE ${new URL(url).pathname.slice(1)} SET default_transaction_isolation = serializable`,
  );
  const stack = await startStack({ DATABASE_URL: url });
  await post(`${stack.core}/v1/pets`, REX);
  const change = (at: number) => post(`${stack.core}/v1/pets/1`, { name: `Rex ${at}` }, { method: 'PATCH' });
  const answers = await Promise.all(Array.from({ length: 50 }, (_, at) => change(at)));
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
});

describe.for(DATABASES)('on %s', async ([, empty]) => {
  test('an exception in the store code does not count as a lost connection', async () => {
    const store = await openStore(await empty());
    const fault = new ReferenceError('nothing is not defined');
    const faulty = function* (): Generator<never, void, never> {
      yield* [];
      throw fault;
    };
    await expect(store.read(faulty)).rejects.toBe(fault);
    await expect(store.write(faulty)).rejects.toBe(fault);
    await store.check();
    await store.close();
  });

  test.for(['pets', 'orders', 'idempotency'])(
    'a core without the table %s is not ready and logs the reason',
    async (table) => {
      const url = await empty();
      const stack = await startStack({ DATABASE_URL: url });
      expect(await readiness(stack)).toBe(200);
      const sql = `DROP TABLE ${table}${url.startsWith('sqlite') ? '' : ' CASCADE'}`;
      if (url.startsWith('sqlite'))
        new DatabaseSync(url.slice('sqlite:'.length)).exec(`PRAGMA foreign_keys = OFF; ${sql}`);
      else await onPostgres(url, sql);
      expect(await readiness(stack)).toBe(503);
      expect(stack.coreLog.at(-1)).toMatchObject({ operation: 'readyz', status: 503, code: 'unavailable' });
      expect(String(stack.coreLog.at(-1)?.reason)).toContain(table);
    },
  );
});

test('a core with a locked SQLite file is not ready until it is unlocked', async () => {
  const stack = await startStack();
  const other = new DatabaseSync(`${stack.directory}/store.db`);
  other.exec('BEGIN IMMEDIATE');
  expect(await readiness(stack)).toBe(503);
  other.exec('ROLLBACK');
  expect(await readiness(stack)).toBe(200);
});

test('a core with a read-only PostgreSQL is not ready, and one with a locked table is', async () => {
  const url = await emptyPostgres();
  const stack = await startStack({ DATABASE_URL: url });
  const holder = new pg.Client(url);
  await holder.connect();
  await holder.query('BEGIN; LOCK TABLE orders');
  expect(await readiness(stack)).toBe(200);
  await holder.query('ROLLBACK');
  await holder.end();
  const name = new URL(url).pathname.slice(1);
  await onPostgres(url, `ALTER DATABASE ${name} SET default_transaction_read_only = on`);
  // Open connections keep the old setting.
  await onPostgres(
    url,
    'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()',
  );
  await expect
    .poll(async () => [await readiness(stack), stack.coreLog.at(-1)?.reason])
    .toEqual([503, expect.stringContaining('read-only')]);
  expect((await post(`${stack.core}/v1/pets`, REX)).status).toBe(503);
  // All connections of the pool are open, used and read-only.
  const list = () => Promise.all(Array.from({ length: 40 }, async () => (await send(`${stack.core}/v1/pets`)).status));
  await list();
  await onPostgres(
    url,
    'SET default_transaction_read_only = off',
    `ALTER DATABASE ${name} RESET default_transaction_read_only`,
  );
  await expect.poll(async () => (await post(`${stack.core}/v1/pets`, REX)).status, { timeout: 5_000 }).toBe(201);
  const added = await Promise.all(Array.from({ length: 40 }, () => post(`${stack.core}/v1/pets`, REX)));
  expect(new Set(added.map(({ status }) => status))).toEqual(new Set([201]));
  expect(new Set(await list())).toEqual(new Set([200]));
  expect(await readiness(stack)).toBe(200);
});

test('a core to which PostgreSQL grants no connection is not ready until it gets one', async () => {
  const url = await emptyPostgres();
  const own = new URL(url);
  const role = own.pathname.slice(1);
  own.username = role;
  own.password = 'test';
  await onPostgres(url, `CREATE ROLE ${role} LOGIN PASSWORD 'test'`, `GRANT ALL ON SCHEMA public TO ${role}`);
  cleanUp(() => onPostgres(url, `DROP OWNED BY ${role}`, `DROP ROLE ${role}`));
  const stack = await startStack({ DATABASE_URL: own.href });
  expect(await readiness(stack)).toBe(200);
  const sessions = `FROM pg_stat_activity WHERE usename = '${role}'`;
  await onPostgres(url, `ALTER ROLE ${role} CONNECTION LIMIT 0`, `SELECT pg_terminate_backend(pid) ${sessions}`);
  await expect
    .poll(async () => [await readiness(stack), stack.coreLog.at(-1)?.reason])
    .toEqual([503, expect.stringContaining('too many connections')]);
  await onPostgres(url, `ALTER ROLE ${role} CONNECTION LIMIT -1`);
  expect(await readiness(stack)).toBe(200);
  expect((await post(`${stack.core}/v1/pets`, REX)).status).toBe(201);
});

test('a core with SQLite on a full disk returns 503 for writes and still serves reads', async () => {
  const folder = await temporaryFolder();
  const environment = { PORT: '0', DATABASE_URL: `sqlite:${folder}/store.db` };
  // A limit of 400 blocks of 512 bytes simulates a full disk.
  const limited = ['sh', '-c', 'ulimit -f 400; exec "$0" "$@"'];
  const { out, addresses } = await startService('core/main.ts', environment, limited);
  const url = addresses.core as string;
  const statuses = new Set<number>();
  for (let sent = 0; sent < 200 && !statuses.has(503); sent++) {
    const pets = Array.from({ length: 10 }, () => post(`${url}/v1/pets`, { ...REX, name: 'x'.repeat(100) }));
    for (const { status } of await Promise.all(pets)) statuses.add(status);
  }
  expect(statuses).toEqual(new Set([201, 503]));
  expect((await send(`${url}/v1/pets`)).status).toBe(200);
  await expect.poll(out).toMatch(/"status":503,"code":"unavailable".*"reason":"disk I\/O error/);
});

const READY_FOR_QUERY = Buffer.from('Z\0\0\0\x05I', 'latin1');
const FATAL_FIELDS = 'SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0';
const FATAL = Buffer.from(`E\0\0\0${String.fromCharCode(4 + FATAL_FIELDS.length)}${FATAL_FIELDS}`, 'latin1');

test('a core survives a PostgreSQL connection that is terminated as soon as it is ready', async () => {
  const proxy = await startFaultProxy(await emptyPostgres());
  const core = await startService('core/main.ts', { PORT: '0', DATABASE_URL: proxy.url, LOG_LEVEL: 'warn' });
  const pets = `${core.addresses.core}/v1/pets`;
  const statuses = async (count: number) => {
    const answers = await Promise.all(Array.from({ length: count }, () => send(pets)));
    return new Set(answers.map(({ status }) => status));
  };
  expect(await statuses(1)).toEqual(new Set([200]));
  proxy.set({ kind: 'end', after: READY_FOR_QUERY, last: FATAL });
  await expect.poll(() => statuses(5)).toContain(503);
  proxy.set({ kind: 'pass' });
  await expect.poll(() => proxy.connections).toBe(0);
  expect(await statuses(5)).toEqual(new Set([200]));
});
