import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, expect, test } from 'vitest';
import type { RequestsAnswer } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import type { LogLine } from '../support/log.ts';
import { ownRedis } from '../support/redis-database.ts';
import { temporaryFolder } from '../support/stack.ts';
import { eventually, launchWorkers, untilServing } from '../support/workers.ts';

/** While Redis is unavailable, all workers of a gateway share their limits. */

const MINUTE = 60;
const WORKERS = 3;

const server = await ownRedis({ appendonly: 'yes', dir: await temporaryFolder() });
const workers = await launchWorkers({ WORKERS: String(WORKERS), REDIS_URL: server.url, REDIS_TIMEOUT_MS: '1000' });

/** Sends many requests at once on separate connections, so that every worker gets some. */
async function ask(key: string, count: number): Promise<number[]> {
  const agent = new http.Agent({ maxSockets: 32 });
  const answers = Array.from({ length: count }, () => send(`${workers.gateway}/v1/pets`, { key, agent }));
  const statuses = (await Promise.all(answers)).map(({ status }) => status);
  agent.destroy();
  return statuses;
}

const countOf = (statuses: readonly number[], status: number) => statuses.filter((one) => one === status).length;
const issueTight = () => workers.issueKey({ plan: 'free', minute: MINUTE });

/** The number of workers that have logged a matching request. */
const workersOf = (isMeant: (line: LogLine) => boolean): number =>
  new Set(
    workers
      .logged('request')
      .filter(isMeant)
      .map(({ worker }) => worker),
  ).size;

async function restart(): Promise<void> {
  await server.restart();
  const away = /^gateway_redis_nodes_away\{.*\} 1$/m;
  await eventually(async () => (await workers.admin('/metrics')).text).not.toMatch(away);
  await eventually(async () => (await workers.admin('/keys')).status).toBe(200);
}

const CHARGED = /^gateway_local_admissions_total\{fate="charged"\} (\d+)$/m;

let isFirst = true;
beforeEach(async () => {
  if (!isFirst) await restart();
  isFirst = false;
  await untilServing(workers, WORKERS);
});

test('all workers serve a key that one of them has verified, and share its allowance; other keys get a 503', async () => {
  const [unseen, ...keys] = await Promise.all([issueTight(), issueTight(), issueTight(), issueTight()]);
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
  expect(new Set(await ask(unseen, 40))).toEqual(new Set([503]));
  await eventually(() => workersOf(({ mode }) => mode === 'local')).toBe(WORKERS);
});

test('requests that workers admitted without Redis are charged once by the primary, and counted', async () => {
  const key = await issueTight();
  expect(await ask(key, 5)).toEqual(Array(5).fill(200));
  // Charges of the previous test are made within two seconds of reconnecting.
  await sleep(2_000);
  const counted = async () => Number(CHARGED.exec((await workers.admin('/metrics')).text)?.[1]);
  const before = await counted();
  await server.stop();
  const admitted = countOf(await ask(key, 20), 200);
  expect(admitted).toBe(20);
  await restart();
  const charged = async () => ((await workers.admin(`/keys/${idOf(key)}`)).json as { admitted: number }).admitted;
  await eventually(charged).toBe(25);
  expect((await counted()) - before).toBe(20);
  await sleep(1_000);
  expect(await charged()).toBe(25);
});

test('a second outage begins with the lower of the local level and the level in Redis', async () => {
  const [left, spent] = await Promise.all([issueTight(), issueTight()]);
  const begun = performance.now();
  const refilled = () => Math.ceil((performance.now() - begun) / 1_000);
  for (const key of [left, spent]) expect(await ask(key, 1)).toEqual([200]);
  await server.stop();
  const before = countOf(await ask(left, 20), 200) + countOf(await ask(spent, 1), 200);
  expect(before).toBe(21);
  await restart();
  // The first key has 59 tokens left in Redis and 39 locally. Nearly all tokens of the second key are spent through
  // Redis.
  expect(countOf(await ask(spent, 50), 200)).toBe(50);
  await server.stop();
  const ofLeft = countOf(await ask(left, 120), 200);
  expect(ofLeft).toBeGreaterThanOrEqual(MINUTE - 21);
  expect(ofLeft).toBeLessThanOrEqual(MINUTE - 21 + refilled());
  expect(countOf(await ask(spent, 120), 200)).toBeLessThanOrEqual(MINUTE - 51 + refilled());
});

/** Sends requests until each worker has served the key. On a busy machine, one worker accepts most connections. */
async function makeKnownToAll(key: string): Promise<void> {
  while (workersOf(({ keyId }) => keyId === idOf(key)) < WORKERS)
    expect(new Set(await ask(key, 50))).toEqual(new Set([200]));
}

test('workers whose primary hangs decide from their own data, and each request is charged once', async () => {
  const key = await workers.issueKey();
  await makeKnownToAll(key);
  await server.stop();
  expect(new Set(await ask(key, 40))).toEqual(new Set([200]));
  process.kill(workers.child.pid as number, 'SIGSTOP');
  const statuses = await ask(key, 100);
  process.kill(workers.child.pid as number, 'SIGCONT');
  expect(new Set(statuses)).toEqual(new Set([200]));
  expect(new Set(await ask(key, 100))).toEqual(new Set([200]));
  await restart();
  const served = () => workers.logged('request').filter(({ keyId }) => keyId === idOf(key)).length;
  const admitted = async () => ((await workers.admin(`/keys/${idOf(key)}`)).json as { admitted: number }).admitted;
  await eventually(async () => (await admitted()) === served()).toBe(true);
  await sleep(1_000);
  expect(await admitted()).toBe(served());
});

test('while the primary hangs, the reason for refusing a key of another worker is that the primary did not answer', async () => {
  const [key, unseen] = await Promise.all([workers.issueKey(), workers.issueKey()]);
  expect(await ask(key, 1)).toEqual([200]);
  await server.stop();
  expect(new Set(await ask(key, 40))).toEqual(new Set([200]));
  const logged = (of: string) =>
    workers
      .logged('request')
      .flatMap(({ keyId, status, reason }) => (keyId === idOf(of) && status === 503 ? reason : []));
  const noPrimary =
    'Redis is unavailable, the primary process did not answer in time, and this worker has not verified the key.';
  const neverVerified = expect.stringMatching(/^Redis is unavailable, and this gateway has not verified the key/);
  const askWithoutPrimary = async () => {
    process.kill(workers.child.pid as number, 'SIGSTOP');
    while (!(await ask(key, 50)).includes(503));
    process.kill(workers.child.pid as number, 'SIGCONT');
    const { json } = await workers.admin(`/requests?keyId=${idOf(key)}&status=503`);
    const shown = (json as RequestsAnswer).requests.map(({ reason, advice }) => `${reason} ${advice}`);
    return [...logged(key), ...shown];
  };
  await eventually(askWithoutPrimary).toEqual(
    expect.arrayContaining([noPrimary, expect.stringMatching(/ did not answer.*CPU/)]),
  );
  const askUnseen = async () => ((await ask(unseen, 1)).includes(503) ? logged(unseen) : []);
  await eventually(askUnseen).toContainEqual(neverVerified);
});

test('a ban stays in force on all workers after the worker that returned it is killed and Redis is lost', async () => {
  await workers.change('PATCH', '/plans/pro', { ban_after: 1, ban_grace_seconds: 0 });
  const key = await workers.issueKey({ plan: 'pro', minute: 400 });
  await makeKnownToAll(key);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const last = async () => (await send(`${workers.gateway}/v1/pets`, { key, agent })).json;
  await expect.poll(last, { interval: 1 }).toMatchObject({ code: 'key_banned' });
  const banned = () =>
    workers.logged('request').findLast(({ outcome, keyId }) => outcome === 'banned' && keyId === idOf(key));
  await expect.poll(banned, { interval: 1 }).toBeDefined();
  const pid = workers.logged('worker is serving').findLast(({ worker }) => worker === banned()?.worker)?.pid as number;
  process.kill(pid, 'SIGKILL');
  agent.destroy();
  await server.stop();
  expect(new Set(await ask(key, 40).catch(() => []))).not.toContain(200);
});

test('a hanging worker does not stop the others from deciding', async () => {
  const keys = await Promise.all(Array.from({ length: 6 }, () => workers.issueKey()));
  for (const key of keys) await makeKnownToAll(key);
  await server.stop();
  const pid = workers.pids()[0] as number;
  process.kill(pid, 'SIGSTOP');
  const answered: number[] = [];
  const agent = new http.Agent({ maxSockets: 64 });
  // Requests on connections of the hanging worker wait for it.
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
