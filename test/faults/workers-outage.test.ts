import http from 'node:http';
import { beforeEach, expect, test, vi } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { startRedisServer } from '../support/redis.ts';
import { temporaryFolder } from '../support/stack.ts';
import { eventually, launchWorkers } from '../support/workers.ts';

/** While Redis is away, all workers of a machine decide as one. */

vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 });

const MINUTE = 60;
const WORKERS = 4;

const server = await startRedisServer({ appendonly: 'yes', dir: await temporaryFolder() });
cleanUp(server.stop);
const workers = await launchWorkers({ WORKERS: String(WORKERS), REDIS_URL: server.url, REDIS_TIMEOUT_MS: '1000' });

/** Each request on a connection of its own, many at once, so that every worker gets some. */
async function ask(key: string, count: number): Promise<number[]> {
  const agent = new http.Agent({ maxSockets: 32 });
  const answers = Array.from({ length: count }, () => send(`${workers.gateway}/v1/pets`, { key, agent }));
  const statuses = (await Promise.all(answers)).map(({ status }) => status);
  agent.destroy();
  return statuses;
}

const countOf = (statuses: readonly number[], status: number) => statuses.filter((one) => one === status).length;
const issueTight = () => workers.issueKey({ plan: 'free', minute: MINUTE });

/** Which workers have decided without Redis. */
const localWorkers = () => {
  const local = workers.logged('request').filter(({ mode }) => mode === 'local');
  return new Set(local.map(({ worker }) => worker));
};

async function restart(): Promise<void> {
  await server.restart();
  const away = /^gateway_redis_nodes_away\{.*\} 1$/m;
  await eventually(async () => (await workers.admin('/metrics')).text).not.toMatch(away);
  await eventually(async () => (await workers.admin('/keys')).status).toBe(200);
}

let isFirst = true;
beforeEach(async () => {
  if (!isFirst) await restart();
  isFirst = false;
});

test('a key that one worker has seen has one allowance on a machine, and is unknown to none', async () => {
  const keys = await Promise.all([issueTight(), issueTight(), issueTight()]);
  const begun = performance.now();
  for (const key of keys) expect(await ask(key, 1)).toEqual([200]);
  await server.stop();
  for (const key of keys) {
    const statuses = await ask(key, 240);
    const refilled = Math.ceil((performance.now() - begun) / 1_000);
    expect(countOf(statuses, 200)).toBeGreaterThanOrEqual(MINUTE - 1);
    expect(countOf(statuses, 200)).toBeLessThanOrEqual(MINUTE - 1 + refilled);
    expect(countOf(statuses, 200) + countOf(statuses, 429)).toBe(240);
  }
  await eventually(() => localWorkers().size).toBe(WORKERS);
});

test('a key that no worker has seen is told to come back', async () => {
  const key = await workers.issueKey();
  await server.stop();
  expect(new Set(await ask(key, 40))).toEqual(new Set([503]));
});

test('an outage that comes again begins with what was left, in Redis and here', async () => {
  const [left, spent] = await Promise.all([issueTight(), issueTight()]);
  const begun = performance.now();
  const refilled = () => Math.ceil((performance.now() - begun) / 1_000);
  for (const key of [left, spent]) expect(await ask(key, 1)).toEqual([200]);
  await server.stop();
  const before = countOf(await ask(left, 20), 200) + countOf(await ask(spent, 1), 200);
  expect(before).toBe(21);
  await restart();
  // Redis has 59 of the first left, and the machine 39; of the second, Redis is asked for nearly all.
  expect(countOf(await ask(spent, 50), 200)).toBe(50);
  await server.stop();
  const ofLeft = countOf(await ask(left, 120), 200);
  expect(ofLeft).toBeGreaterThanOrEqual(MINUTE - 21);
  expect(ofLeft).toBeLessThanOrEqual(MINUTE - 21 + refilled());
  expect(countOf(await ask(spent, 120), 200)).toBeLessThanOrEqual(MINUTE - 51 + refilled());
});

test('workers whose primary stands still go by what they know themselves', async () => {
  const key = await workers.issueKey();
  expect(new Set(await ask(key, 200))).toEqual(new Set([200]));
  await server.stop();
  process.kill(workers.child.pid as number, 'SIGSTOP');
  const statuses = await ask(key, 100);
  process.kill(workers.child.pid as number, 'SIGCONT');
  expect(countOf(statuses, 200)).toBeGreaterThan(20);
  expect(new Set(await ask(key, 100))).toEqual(new Set([200]));
});

test('a worker that stands still does not keep the others from deciding', async () => {
  const keys = await Promise.all(Array.from({ length: 6 }, () => workers.issueKey()));
  for (const key of keys) await ask(key, 50);
  await server.stop();
  const pid = workers.pids()[0] as number;
  process.kill(pid, 'SIGSTOP');
  const answered: number[] = [];
  const agent = new http.Agent({ maxSockets: 64 });
  // Connections that the worker has taken wait for it.
  const answers = keys.map(async (key) => {
    const all = Array.from({ length: 20 }, () => send(`${workers.gateway}/v1/pets`, { key, agent }));
    for (const one of all) void one.then(({ status }) => answered.push(status));
    await Promise.all(all);
  });
  await eventually(() => answered.length).toBeGreaterThan(20);
  process.kill(pid, 'SIGCONT');
  await Promise.all(answers);
  agent.destroy();
  const ids = keys.map(idOf);
  const failed = workers.logged('request').filter(({ keyId, status }) => ids.includes(`${keyId}`) && status !== 200);
  expect(failed).toEqual([]);
  expect(new Set(answered)).toEqual(new Set([200]));
});
