import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { emptyPostgres } from '../support/databases.ts';
import { post, send } from '../support/http.ts';
import { startPostgres } from '../support/postgres.ts';
import { ROOT, startService } from '../support/process.ts';
import { startStack } from '../support/stack.ts';
import { fact, TIMED } from '../support/timed.ts';

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

test(
  'without PostgreSQL, the core immediately returns 503, and it works again when PostgreSQL is back',
  TIMED,
  async () => {
    const postgres = await startPostgres();
    cleanUp(postgres.stop);
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
