import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { startProcess } from '../support/process.ts';
import { startRedisServer } from '../support/redis.ts';
import { eventually, startWorkers, untilServing, type Workers } from '../support/workers.ts';

vi.setConfig({ testTimeout: 90_000 });

interface Traffic {
  readonly mode: string;
  readonly totals: { readonly admitted: number };
}

const trafficOf = async (workers: Workers) => (await workers.admin('/traffic')).json as Traffic;
const admitted = async (workers: Workers) => (await trafficOf(workers)).totals.admitted;

/** Requests, each on a connection of its own, so that both workers get some. */
async function ask(workers: Workers, key: string, count: number): Promise<void> {
  const agent = new http.Agent({ maxSockets: 16 });
  const answers = Array.from({ length: count }, () => send(`${workers.gateway}/v1/pets`, { key, agent }));
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(Array(count).fill(200));
  agent.destroy();
}

test('counts are summed over workers, and stay when a worker is replaced or crashes', async () => {
  const workers = await startWorkers();
  const key = await workers.issueKey();
  await ask(workers, key, 100);
  await eventually(() => admitted(workers)).toBe(100);
  const metrics = await scrape(workers.adminUrl);
  expect(metrics.series('gateway_requests_total')).toEqual([
    {
      name: 'gateway_requests_total',
      labels: { operation: 'listPets', status: '200', plan: 'enterprise' },
      value: 100,
    },
  ]);
  expect(metrics.sum('gateway_decisions_total')).toBe(100);
  expect(metrics.sum('gateway_request_duration_seconds_count')).toBe(100);
  expect(metrics.sum('gateway_redis_batch_size_sum')).toBe(100);
  expect(metrics.sum('gateway_upstream_duration_seconds_count')).toBe(100);
  // How each process stands is each one's own.
  for (const name of ['gateway_upstream_ready', 'gateway_redis_nodes_away', 'gateway_plans_rejected_values'])
    expect(metrics.series(name).map(({ labels }) => labels.worker)).toEqual(['1', '2']);
  expect(metrics.series('process_resident_memory_bytes').map(({ labels }) => labels.worker)).toEqual([
    undefined,
    '1',
    '2',
  ]);

  const pids = workers.pids();
  workers.child.kill('SIGHUP');
  // Asked until the end, so that each worker that goes has something to tell that it has not told yet.
  let asked = 100;
  for (; workers.logged('rolling restart done').length === 0; asked++) {
    await ask(workers, key, 1);
    await sleep(10);
  }
  await eventually(() => admitted(workers)).toBe(asked);

  const [first = 0] = workers.pids();
  expect(pids).not.toContain(first);
  process.kill(first, 'SIGKILL');
  await eventually(() => workers.logged('worker ended')).toHaveLength(1);
  expect(await admitted(workers)).toBe(asked);
  await untilServing(workers, 2);
  await ask(workers, key, 10);
  await eventually(() => admitted(workers)).toBe(asked + 10);
});

test('traffic says that decisions are local while one of the workers takes them', async () => {
  const redis = await startRedisServer();
  cleanUp(() => redis.stop());
  const workers = await startWorkers({ REDIS_URL: redis.url });
  const key = await workers.issueKey();
  await ask(workers, key, 20);
  expect((await trafficOf(workers)).mode).toBe('shared');
  await redis.stop();
  await eventually(async () => {
    await send(`${workers.gateway}/v1/pets`, { key });
    return (await trafficOf(workers)).mode;
  }).toBe('local');
  await redis.restart();
  await eventually(async () => (await trafficOf(workers)).mode).toBe('shared');
});

test('no answer of a worker stays in memory, and many may ask at once', async () => {
  const { ended } = startProcess(process.execPath, ['--expose-gc', 'test/support/asked-worker.ts'], {});
  const { out, err } = await ended;
  expect([JSON.parse(out), err]).toEqual([{ told: 100, kept: 0 }, '']);
});
