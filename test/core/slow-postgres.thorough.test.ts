import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { expect, test } from 'vitest';
import { CHECK_WITHIN_MS } from '../../core/store/postgres.ts';
import { cleanUp } from '../support/clean-up.ts';
import { emptyPostgres } from '../support/databases.ts';
import { type Answer, send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { pausePostgres, startPostgres } from '../support/postgres.ts';
import { startService } from '../support/process.ts';
import { startStack, UNLIMITED } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';
import { quantile } from '../support/statistics.ts';
import { TIMED } from '../support/timed.ts';

/** A slow PostgreSQL delays requests, but every core stays ready. */

/** More than the database connections of both cores. */
const REQUESTS = 40;
/** The gateway's probe timeout. */
const PROBE_MS = 1_000;
const WATCHED_MS = 3_000;
/** Shorter than the statement timeout, and longer than a check takes on a busy machine. */
const LONGEST_MS = 3_000;

async function startTwoCores(DATABASE_URL: string) {
  const environment = { PORT: '0', DATABASE_URL, LOG_LEVEL: 'warn' };
  const started = [await startService('core/main.ts', environment), await startService('core/main.ts', environment)];
  const cores = started.map(({ addresses }) => addresses.core ?? '');
  const stack = await startStack({ CORE_URL: cores.join(','), DATABASE_URL });
  const key = await stack.issueKey(UNLIMITED);
  await Promise.all(Array.from({ length: REQUESTS }, () => send(`${stack.gateway}/v1/pets`, { key })));
  return { cores, stack, key };
}

async function startOwn() {
  const postgres = await startPostgres();
  cleanUp(postgres.stop);
  return postgres;
}

/** Requests /readyz for some seconds. @returns its statuses, and the longest wait in milliseconds */
async function watchReadiness(cores: readonly string[]) {
  const statuses = new Set<number>();
  let longestMs = 0;
  for (const end = performance.now() + WATCHED_MS; performance.now() < end; await sleep(20))
    for (const core of cores) {
      const askedAt = performance.now();
      statuses.add((await send(`${core}/readyz`)).status);
      longestMs = Math.max(longestMs, performance.now() - askedAt);
    }
  return { statuses: [...statuses], longestMs };
}

/** Sends more requests than the pools can serve, watches readiness for some seconds, and then calls `end`. */
async function overload({ cores, stack, key }: Awaited<ReturnType<typeof startTwoCores>>, end: () => unknown) {
  const asked = Array.from({ length: REQUESTS }, () => send(`${stack.gateway}/v1/pets`, { key }));
  const watched = await watchReadiness(cores);
  const ready = async () => (await scrape(stack.adminUrl)).series('gateway_upstream_ready').map(({ value }) => value);
  await expect.poll(ready).toEqual([1, 1]);
  await end();
  return { answers: await Promise.all(asked), watched };
}

const outcomes = (answers: readonly Answer[]) => [
  ...new Set(answers.map(({ status, headers }) => `${status} ${headers['retry-after'] ?? ''}`)),
];

test(
  'while every pooled connection waits for a lock, both cores stay ready and shed excess requests',
  TIMED,
  async () => {
    const url = await emptyPostgres();
    const system = await startTwoCores(url);
    const holder = new pg.Client(url);
    await holder.connect();
    cleanUp(() => holder.end());
    await holder.query('BEGIN; LOCK TABLE pets');
    const { answers, watched } = await overload(system, () => holder.query('ROLLBACK'));
    expect(watched.statuses).toEqual([200]);
    expect(watched.longestMs).toBeLessThan(LONGEST_MS);
    // Requests with a connection are served, unless their statement timed out.
    expect(outcomes(answers)).toContain('503 1');
    expect(outcomes(answers).filter((outcome) => outcome !== '200 ' && outcome !== '503 1')).toEqual([]);
    expect((await send(`${system.stack.gateway}/v1/pets`, { key: system.key })).status).toBe(200);
  },
);

test(
  'while PostgreSQL is frozen, both cores stay ready and send 503 with Retry-After before the gateway times out',
  TIMED,
  async () => {
    const postgres = await startOwn();
    const system = await startTwoCores(postgres.url);
    const { resume } = pausePostgres(postgres);
    cleanUp(resume);
    const { answers, watched } = await overload(system, () => {});
    expect(watched.statuses).toEqual([200]);
    expect(watched.longestMs).toBeLessThan(LONGEST_MS);
    expect(outcomes(answers)).toEqual(['503 1']);
    // By now, the check has closed its connection. A new connection is accepted but gets no replies.
    expect((await watchReadiness(system.cores)).statuses).toEqual([200]);
    resume();
    await expect
      .poll(async () => (await send(`${system.stack.gateway}/v1/pets`, { key: system.key })).status)
      .toBe(200);
  },
);

test('a check that takes too long repeats the last result, so a core without PostgreSQL stays unready', async () => {
  const postgres = await startOwn();
  const { cores } = await startTwoCores(postgres.url);
  await postgres.stop();
  for (const core of cores) await expect.poll(async () => (await send(`${core}/readyz`)).status).toBe(503);
  expect((await watchReadiness(cores)).statuses).toEqual([503]);
  for (const core of cores) expect((await send(`${core}/livez`)).status).toBe(200);
});

test('a check whose connection is cut is repeated on a new one', async () => {
  const url = await emptyPostgres();
  const { core } = await startStack({ DATABASE_URL: url });
  const client = new pg.Client(url);
  await client.connect();
  cleanUp(() => client.end());
  for (let round = 0; round < 10; round++) {
    expect((await send(`${core}/readyz`)).status).toBe(200);
    await client.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()',
    );
  }
  expect((await send(`${core}/readyz`)).status).toBe(200);
});

test("the core's readiness check times out before the gateway's probe", () => {
  expect(CHECK_WITHIN_MS).toBeLessThanOrEqual(PROBE_MS / 2);
});

const LOCKED_MS = 2_000;
/** A request that waits for the lock takes up to LOCKED_MS, and a busy machine delays some requests. */
const BOUND_MS = LOCKED_MS / 2;

test(
  'while orders are locked in PostgreSQL, reading pets through the gateway is as fast as directly from the core',
  TIMED,
  async () => {
    const url = await emptyPostgres();
    const core = await startService('core/main.ts', { PORT: '0', DATABASE_URL: url, LOG_LEVEL: 'warn' });
    const { stack, key: blocked, get } = await stackBefore(core.addresses.core ?? '');
    const free = await stack.issueKey(UNLIMITED);
    for (const key of [blocked, free]) await get('', { key });
    const locking = new pg.Client(url);
    await locking.connect();
    cleanUp(() => locking.end());
    await locking.query('BEGIN; LOCK TABLE orders');

    // Fewer than the core's database connections.
    const orders = Array.from({ length: 5 }, () => send(`${stack.gateway}/v1/store/orders`, { key: blocked }));
    const [direct, through]: [number[], number[]] = [[], []];
    const time = async (times: number[], asked: () => Promise<{ status: number }>) => {
      const before = performance.now();
      expect((await asked()).status).toBe(200);
      times.push(performance.now() - before);
    };
    for (const end = performance.now() + LOCKED_MS; performance.now() < end; await sleep(10)) {
      await Promise.all([
        ...Array.from({ length: 4 }, () => time(through, () => get('', { key: free }))),
        time(direct, () => send(`${core.addresses.core}/v1/pets`)),
      ]);
    }
    await locking.query('ROLLBACK');
    expect(new Set((await Promise.all(orders)).map(({ status }) => status))).toEqual(new Set([200]));
    expect(quantile(through, 0.99)).toBeLessThan(quantile(direct, 0.99) + BOUND_MS);
  },
);
