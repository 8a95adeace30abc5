import http from 'node:http';
import { expect, test } from 'vitest';
import { usageOf } from '../bench/machine/usage.ts';
import { issueListedKeys } from '../bench/setup/keys.ts';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { fact, TIMED } from '../support/timed.ts';
import { startWorkers } from '../support/workers.ts';

/** Tests how much CPU and memory the primary uses in addition to its worker. */

const LISTED = 10_000;
const CONNECTIONS = 512;

test("operators' lists, even ten at once, use no CPU time of the worker", TIMED, async () => {
  const { url, redis } = await emptyDatabase();
  await issueListedKeys(redis, LISTED);
  const workers = await startWorkers({ WORKERS: '1', REDIS_URL: url });
  const [worker = 0] = workers.pids();
  const cpuMs = () => usageOf(worker).cpuMicroseconds / 1_000;
  // Right after its start, the worker still compiles code.
  await send(`${workers.gateway}/v1/pets`, { key: await workers.issueKey() });
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const ofAll = () => usageOf(workers.child.pid as number).cpuMicroseconds / 1_000;
  const [before, allBefore, startedAt] = [cpuMs(), ofAll(), performance.now()];
  const lists = await Promise.all(Array.from({ length: 10 }, () => workers.admin('/keys?sort=used')));
  const [took, seconds] = [cpuMs() - before, (performance.now() - startedAt) / 1_000];
  await fact(() => {
    expect(lists.map(({ status }) => status)).toEqual(Array(10).fill(200));
    // The list also contains the key of this test.
    for (const { json } of lists) expect((json as { total: number }).total).toBe(LISTED + 1);
  });
  // The worker's timers for probes, plans and reports run several times a second. Beside a busy primary, they find cold
  // caches. A worker that built part of the lists would use ten times as much.
  expect(took).toBeLessThan(20 + 40 * seconds);
  expect(ofAll() - allBefore).toBeGreaterThan(200);
});

test('the primary uses at most 90 MB, and 290 MB together with a worker that has 512 connections', TIMED, async () => {
  // If the code was changed, the first test has already compiled and cached it. Compiling here would take 20 MB more.
  const workers = await startWorkers({ WORKERS: '1' });
  const key = await workers.issueKey();
  const agent = new http.Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  cleanUp(() => agent.destroy());
  const ask = async () => {
    for (let asked = 0; asked < 40; asked++)
      expect((await send(`${workers.gateway}/v1/pets`, { key, agent })).status).toBe(200);
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, ask));
  const both = usageOf(workers.child.pid as number).residentMegabytes;
  const primary = both - usageOf(workers.pids()[0] as number).residentMegabytes;
  expect(primary).toBeLessThanOrEqual(90);
  expect(both).toBeLessThanOrEqual(290);
});
