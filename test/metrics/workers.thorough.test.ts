import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { TrafficAnswer } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { faultyCore, okTo } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { ownRedis } from '../support/redis-database.ts';
import { eventually, startWorkers, untilServing, type Workers } from '../support/workers.ts';

const trafficOf = async (workers: Workers) => (await workers.admin('/traffic')).json as TrafficAnswer;
const admitted = async (workers: Workers) => (await trafficOf(workers)).totals.admitted;

/** Sends requests on separate connections, so that both workers receive some. */
async function ask(workers: Workers, key: string, count: number, status = 200): Promise<void> {
  const agent = new http.Agent({ maxSockets: 16 });
  const answers = Array.from({ length: count }, () => send(`${workers.gateway}/v1/pets`, { key, agent }));
  expect((await Promise.all(answers)).map((answer) => answer.status)).toEqual(Array(count).fill(status));
  agent.destroy();
}

const workers = await startWorkers();
const key = await workers.issueKey();

test('counts are summed over workers', async () => {
  await ask(workers, key, 100);
  await eventually(() => admitted(workers)).toBe(100);
  const metrics = await scrape(workers.adminUrl);
  const labels = { operation: 'listPets', status: '200', plan: 'enterprise' };
  expect(metrics.series('gateway_requests_total')).toEqual([{ name: 'gateway_requests_total', labels, value: 100 }]);
  expect(metrics.sum('gateway_decisions_total')).toBe(100);
  expect(metrics.sum('gateway_request_duration_seconds_count')).toBe(100);
  expect(metrics.sum('gateway_redis_batch_size_sum')).toBe(100);
  expect(metrics.sum('gateway_upstream_duration_seconds_count')).toBe(100);
  // Like the counts above, these are shown from the start and belong to no single worker.
  expect(metrics.series('gateway_connections_refused_total').map(({ labels }) => labels)).toEqual([
    { limit: 'address' },
    { limit: 'total' },
  ]);
  for (const name of ['gateway_connections_cut_total', 'gateway_descriptors_exhausted_total'])
    for (const { labels } of metrics.series(name)) expect(labels).not.toHaveProperty('worker');
  // These metrics have one series per worker.
  for (const name of ['gateway_upstream_ready', 'gateway_redis_nodes_away', 'gateway_plans_rejected_values'])
    expect(metrics.series(name).map(({ labels: { worker } }) => worker)).toEqual(['1', '2']);
  const processes = metrics.series('process_resident_memory_bytes').map(({ labels: { worker } }) => worker);
  expect(processes).toEqual([undefined, '1', '2']);
});

test('the minutes of the last hour are summed over all workers', async () => {
  const banned = await workers.issueKey();
  await workers.change('PUT', `/keys/${idOf(banned)}/ban`, { seconds: 600, reason: 'a test' });
  await ask(workers, banned, 30, 429);
  const minutes = async () =>
    ((await workers.admin('/traffic/minutes')).json as { minutes: Record<string, number>[] }).minutes;
  const sums = async (member: string) => (await minutes()).reduce((sum, minute) => sum + (minute[member] ?? 0), 0);
  await eventually(() => sums('admitted')).toBe(100);
  await eventually(() => sums('banned')).toBe(30);
  // Both workers refused the same key.
  expect(Math.max(...(await minutes()).map(({ bannedKeys = 0 }) => bannedKeys))).toBe(1);
  expect((await workers.admin('/traffic')).json).toMatchObject({ workers: { serving: 2, wanted: 2 } });
});

test('counts survive the replacement or crash of a worker', async () => {
  let asked = await admitted(workers);
  const pids = workers.pids();
  workers.child.kill('SIGHUP');
  // Requests continue until the restart is over, so that each worker has unreported counts when it stops.
  for (; workers.logged('rolling restart done').length === 0; asked++) {
    await ask(workers, key, 1);
    await sleep(10);
  }
  await eventually(() => admitted(workers)).toBe(asked);

  const [first = 0] = workers.pids();
  expect(pids).not.toContain(first);
  process.kill(first, 'SIGKILL');
  await eventually(() => workers.logged('worker exited')).toHaveLength(1);
  expect(await admitted(workers)).toBe(asked);
  await untilServing(workers, 2);
  await ask(workers, key, 10);
  await eventually(() => admitted(workers)).toBe(asked + 10);
});

test('/traffic reports local decisions while any worker makes them', async () => {
  const redis = await ownRedis();
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

test('/traffic combines the reports of all workers on the cores and Redis, and lists the workers that serve requests', async () => {
  const waiting: (() => void)[] = [];
  const CORE_URL = await faultyCore((socket, head) => void waiting.push(() => socket.write(okTo(head))));
  const { url: REDIS_URL } = await ownRedis();
  const workers = await startWorkers({ REDIS_URL, CORE_URL, CORE_TIMEOUT_MS: '60000' });
  const key = await workers.issueKey();
  const traffic = () => trafficOf(workers);
  await eventually(async () => (await traffic()).processes).toBe(2);
  const agent = new http.Agent({ maxSockets: 16 });
  const answers = Array.from({ length: 16 }, () => send(`${workers.gateway}/v1/pets`, { key, agent }));
  await eventually(traffic).toMatchObject({
    cores: [{ state: 'unproven', seenBy: 2, inFlight: 16, limit: 4_096 }],
    redis: { mode: 'single', connected: 2, lastCall: {}, missedDeadlines: 0 },
  });
  const pids = workers.pids();
  expect((await traffic()).workers?.each).toEqual(
    [1, 2].map((worker) => ({
      worker,
      pid: pids[worker - 1],
      isStarting: false,
      since: expect.any(String),
      silentMs: expect.any(Number),
    })),
  );
  const answering = setInterval(() => waiting.splice(0).forEach((answer) => void answer()), 5);
  cleanUp(() => clearInterval(answering));
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(Array(16).fill(200));
  agent.destroy();
  await eventually(traffic).toMatchObject({ cores: [{ state: 'up', inFlight: 0 }] });
  process.kill(pids[0] ?? 0, 'SIGKILL');
  await eventually(() => workers.logged('worker exited')).toHaveLength(1);
  const replaced = () => traffic().then(({ workers: state }) => state?.each[0]?.pid ?? pids[0]);
  await eventually(replaced).not.toBe(pids[0]);
});
