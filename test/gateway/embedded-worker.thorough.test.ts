import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import http from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { waitingCore } from '../support/faulty-core.ts';
import { type Answer, send } from '../support/http.ts';
import { parsedLines } from '../support/log.ts';
import { freePort } from '../support/port.ts';
import { startProcess } from '../support/process.ts';
import { ADMIN_TOKEN, startStack, temporaryFolder } from '../support/stack.ts';
import { TIMED } from '../support/timed.ts';
import {
  BOUNDLESS,
  eventually,
  isAlive,
  launchWorkers,
  list,
  replaced,
  stall,
  suspend,
  type Workers,
  workersEnvironment,
} from '../support/workers.ts';

/** A gateway without Redis consists of a primary, which owns the storage, and one worker, which decides in memory. */

const WITHOUT_REDIS = { WORKERS: '1', REDIS_URL: '' };

const launch = (environment: NodeJS.ProcessEnv): Promise<Workers> =>
  launchWorkers({ ...WITHOUT_REDIS, ...environment });

/** Shared by all tests that do not stop their gateway. */
const DIRECTORY = await temporaryFolder();
const gateway = await launch({ DATA_DIR: DIRECTORY });

const workerOf = async (gateway: Workers): Promise<number> => {
  await eventually(gateway.pids).toHaveLength(1);
  return gateway.pids()[0] as number;
};

/** Returns an agent that reuses its connection. */
function keptAlive(): http.Agent {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  cleanUp(() => agent.destroy());
  return agent;
}

/** Issues a key whose tenth request in a minute is refused, and whose twelfth bans it. */
async function smallKey(gateway: Workers): Promise<string> {
  await gateway.change('PATCH', '/plans/free', { minute: 9, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 3_600 });
  return await gateway.issueKey({ plan: 'free' });
}

async function untilBanned(gateway: Workers, key: string): Promise<void> {
  for (let sent = 0; sent < 20; sent++) if (isBan(await list(gateway, key))) return;
  throw new Error('The key was not banned.');
}

const isBan = ({ json }: Answer): boolean => (json as { code?: string }).code === 'key_banned';

const codeOf = ({ status, json }: Answer): unknown => (status === 200 ? 200 : (json as { code: string }).code);

test("an operator's change applies to the next request: revoking, disabling, banning, lifting a ban, limits, plans", async () => {
  const agent = keptAlive();
  const next = async (key: string) => codeOf(await list(gateway, key, agent));
  for (let round = 0; round < 5; round++) {
    const key = await gateway.issueKey();
    const path = `/keys/${idOf(key)}`;
    expect(await next(key)).toBe(200);
    await gateway.change('PATCH', path, { disabled: true });
    expect(await next(key)).toBe('unauthorized');
    await gateway.change('PATCH', path, { disabled: false });
    expect(await next(key)).toBe(200);
    await gateway.change('PUT', `${path}/ban`, { seconds: 600, reason: 'test' });
    expect(await next(key)).toBe('key_banned');
    await gateway.change('DELETE', `${path}/ban`);
    expect(await next(key)).toBe(200);
    await gateway.change('PATCH', path, { minute: 1 });
    expect(await next(key)).toBe(200);
    expect(await next(key)).toBe('rate_limit_exceeded');
    await gateway.change('DELETE', path);
    expect(await next(key)).toBe('unauthorized');
  }
  const key = await gateway.issueKey({ plan: 'free' });
  for (const minute of [7, 8, 9]) {
    await gateway.change('PATCH', '/plans/free', { minute });
    expect((await list(gateway, key, agent)).headers['x-ratelimit-limit']).toBe(String(minute));
  }
});

test('acknowledged resets, bans, levels and counts survive crashes and restarts', async () => {
  const DATA_DIR = await temporaryFolder();
  const first = await launch({ DATA_DIR });
  const agent = keptAlive();
  const [key, banned] = [await smallKey(first), await smallKey(first)];
  const reset = async () => {
    await untilBanned(first, key);
    expect((await first.change('POST', `/keys/${idOf(key)}/reset`, {})).status).toBe(200);
  };
  // The request after a reset already has the new level.
  for (let round = 0; round < 5; round++) {
    await reset();
    const { status, headers } = await list(first, key, agent);
    expect([status, headers['x-ratelimit-remaining']]).toEqual([200, '8']);
  }
  await reset();
  // The worker stores levels once a second, which must not undo the reset.
  await sleep(1_200);
  await untilBanned(first, banned);
  first.child.kill('SIGKILL');
  await first.ended;

  const second = await launch({ DATA_DIR });
  expect(isBan(await list(second, banned))).toBe(true);
  expect(await list(second, key)).toMatchObject({ status: 200, headers: { 'x-ratelimit-remaining': '8' } });
  const used = await second.issueKey({ plan: 'enterprise', minute: 1_000, day: 100 });
  for (let sent = 0; sent < 10; sent++) await list(second, used);
  // Unlike SIGTERM, SIGINT does not wait a second for load balancers.
  second.child.kill('SIGINT');
  await second.ended;

  const third = await launch({ DATA_DIR });
  const remaining = async () => Number((await list(third, used)).headers['x-ratelimit-remaining']);
  expect(await remaining()).toBe(89);
  expect((await third.admin(`/keys/${idOf(used)}`)).json).toMatchObject({ admitted: 11 });
  await replaced(third, (worker) => process.kill(worker, 'SIGKILL'));
  // The restarted worker uses the plans of the primary from its first decision.
  expect((await list(third, key)).headers['x-ratelimit-limit']).toBe('9');
  expect(await remaining()).toBe(88);
});

test('operators see every decision as soon as it is made', async () => {
  const key = await gateway.issueKey();
  for (let admitted = 1; admitted < 20; admitted++) {
    await list(gateway, key);
    expect((await gateway.admin(`/keys/${idOf(key)}`)).json).toMatchObject({ admitted });
  }
});

test('a worker that stalls for 3 s during a change survives with its counts, and the change binds', async () => {
  const key = await gateway.issueKey();
  expect((await list(gateway, key)).status).toBe(200);
  const worker = await workerOf(gateway);
  const stalling = stall(worker, 3_000);
  expect((await gateway.change('PATCH', `/keys/${idOf(key)}`, { disabled: true })).status).toBe(200);
  await stalling;
  expect(codeOf(await list(gateway, key))).toBe('unauthorized');
  expect((await gateway.admin(`/keys/${idOf(key)}`)).json).toMatchObject({ admitted: 1 });
  expect(gateway.pids()).toEqual([worker]);
  expect(gateway.logged('worker exited')).toEqual([]);
});

test('a frozen worker is killed, and the revocation that waited for it takes effect', async () => {
  const key = await gateway.issueKey();
  expect((await list(gateway, key)).status).toBe(200);
  const worker = await workerOf(gateway);
  suspend(worker);
  const before = performance.now();
  expect((await gateway.change('DELETE', `/keys/${idOf(key)}`)).status).toBe(204);
  // Both limits are 10 s: for the change, and for a worker that sends nothing.
  expect(Math.abs(performance.now() - before - 11_500)).toBeLessThan(3_500);
  expect(isAlive(worker)).toBe(false);
  await eventually(() => gateway.pids()).not.toEqual([worker]);
  expect(codeOf(await list(gateway, key))).toBe('unauthorized');
  expect(gateway.logged('worker exited')).toMatchObject([
    { level: 50, pid: worker, said: expect.stringMatching(/in time|sent nothing/) },
  ]);
});

test('while a replaced worker hangs, its successor soon serves the key that it holds', async () => {
  const core = await waitingCore();
  const gateway = await launch({ CORE_URL: core.url });
  const key = await gateway.issueKey();
  const cutOff = list(gateway, key).catch(({ code }) => code);
  await core.arrived;
  const old = await workerOf(gateway);
  gateway.child.kill('SIGHUP');
  await eventually(() => gateway.logged('worker is serving').length).toBe(2);
  suspend(old);
  const before = performance.now();
  await eventually(async () => (await send(`${gateway.gateway}/v1/limits`, { key })).status).toBe(200);
  expect(performance.now() - before).toBeLessThan(5_000);
  expect(isAlive(old)).toBe(false);
  expect(await cutOff).toBe('ECONNRESET');
});

test('a worker whose primary was killed accepts no new request, finishes those in progress, and exits', async () => {
  const core = await waitingCore();
  const gateway = await launch({ CORE_URL: core.url });
  const [inUse, idle] = [keptAlive(), keptAlive()];
  const key = await gateway.issueKey();
  const underWay = list(gateway, key, inUse);
  const answer = await core.arrived;
  expect((await send(`${gateway.gateway}/v1/limits`, { key, agent: idle })).status).toBe(200);
  const worker = await workerOf(gateway);
  gateway.child.kill('SIGKILL');
  await eventually(() => gateway.logged('stopping')).toMatchObject([{ reason: 'parent gone' }]);
  for (const agent of [idle, undefined])
    await expect(send(`${gateway.gateway}/v1/limits`, { key, ...(agent && { agent }) })).rejects.toThrow(
      /ECONNREFUSED|ECONNRESET|socket hang up/,
    );
  answer();
  expect(await underWay).toMatchObject({ status: 200, headers: { connection: 'close' } });
  await eventually(() => isAlive(worker)).toBe(false);
});

test('a new worker takes over each key with its level while the old one still serves open connections', async () => {
  const key = await gateway.issueKey({ plan: 'enterprise', minute: 1_000, day: 40 });
  const agents = Array.from({ length: 10 }, keptAlive);
  const used = async (agent?: http.Agent) => Number((await list(gateway, key, agent)).headers['x-ratelimit-remaining']);
  for (const agent of agents) await used(agent);
  await replaced(gateway, () => gateway.child.kill('SIGHUP'));
  const remaining: number[] = [];
  for (const agent of agents) remaining.push(await used(agent), await used());
  expect(remaining).toEqual(Array.from({ length: 20 }, (_, at) => 29 - at));
  expect((await gateway.admin(`/keys/${idOf(key)}`)).json).toMatchObject({ admitted: 30 });
});

test('a second gateway with the same DATA_DIR exits with a message that names the first', async () => {
  const environment = await workersEnvironment({
    ...WITHOUT_REDIS,
    DATA_DIR: DIRECTORY,
    PORT: String(await freePort()),
  });
  expect(await startProcess(process.execPath, ['gateway/main.ts'], environment).ended).toEqual({
    code: 1,
    out: '',
    err: expect.stringMatching(new RegExp(`^DATA_DIR .* process ${gateway.child.pid}\\. .*REDIS_URL.*\n$`)),
  });
});

test('a key that many clients use is served during reloads, while two workers run', async () => {
  const key = await gateway.issueKey(BOUNDLESS);
  const statuses = new Set<number>();
  let isOver = false;
  const clients = Array.from({ length: 24 }, async () => {
    while (!isOver) statuses.add((await list(gateway, key)).status);
  });
  for (let reload = 0; reload < 4; reload++) {
    const worker = await workerOf(gateway);
    await sleep(300);
    gateway.child.kill('SIGHUP');
    await eventually(() => isAlive(worker)).toBe(false);
  }
  isOver = true;
  await Promise.all(clients);
  expect(statuses).toEqual(new Set([200]));
});

test('on SIGTERM, requests in flight finish, their connections close, and the exit status is 0', async () => {
  const core = await waitingCore();
  const gateway = await launch({ CORE_URL: core.url });
  const { gateway: url, adminUrl } = gateway;
  const key = await gateway.issueKey();

  const agent = new http.Agent({ keepAlive: true });
  const inFlight = send(`${url}/v1/pets`, { key, agent });
  const answer = await core.arrived;
  gateway.child.kill('SIGTERM');
  await expect.poll(async () => (await send(`${adminUrl}/readyz`)).status).toBe(503);
  expect((await send(`${url}/v1/pets`)).headers.connection).toBe('close');
  await expect.poll(() => send(`${url}/v1/pets`).catch(({ code }) => code)).toBe('ECONNREFUSED');
  answer();
  expect(await inFlight).toMatchObject({ status: 200, headers: { connection: 'close' } });
  const { code, out } = await gateway.ended;
  expect(code).toBe(0);
  expect(out).toMatch(/"status":200,/);
  agent.destroy();
});

test("on SIGTERM, the gateway drains as soon as a worker serves, even before the operators' listener is open", async () => {
  const [DATA_DIR, PORT, core] = [await temporaryFolder(), String(await freePort()), await waitingCore()];
  const environment = await workersEnvironment({ ...WITHOUT_REDIS, PORT, CORE_URL: core.url, DATA_DIR });
  const before = await launch(environment);
  const key = await before.issueKey();
  before.child.kill('SIGINT');
  await before.ended;

  // Reading the operators' token blocks until it is written.
  execFileSync('mkfifo', [join(DATA_DIR, 'admin-token')]);
  const { child, out, ended } = startProcess(process.execPath, ['gateway/main.ts'], {
    ...environment,
    ADMIN_TOKEN: '',
  });
  await expect.poll(out).toContain('worker is serving');
  const inFlight = send(`http://127.0.0.1:${PORT}/v1/pets`, { key });
  const answer = await core.arrived;
  child.kill('SIGTERM');
  const refused = () => send(`http://127.0.0.1:${PORT}/livez`).then(String, ({ code }) => code);
  await expect.poll(refused).toBe('ECONNREFUSED');
  await writeFile(join(DATA_DIR, 'admin-token'), ADMIN_TOKEN);
  answer();
  expect(await inFlight).toMatchObject({ status: 200, headers: { connection: 'close' } });
  expect(await ended).toMatchObject({ code: 0, err: '' });
  const ofPrimary = parsedLines(out)().filter((line) => line.service === 'gateway' && !('worker' in line));
  expect(ofPrimary.map(({ msg }) => msg)).toEqual(['stopping']);
});

test('a stopping gateway does not wait for an idle connection', TIMED, async () => {
  const stack = await startStack();
  const agent = new http.Agent({ keepAlive: true });
  await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey(), agent });
  const before = performance.now();
  await stack.stop();
  expect(performance.now() - before).toBeLessThan(1_000);
  agent.destroy();
});
