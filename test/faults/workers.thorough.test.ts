import http from 'node:http';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { childrenOf } from '../support/children.ts';
import { cleanUp } from '../support/clean-up.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { send } from '../support/http.ts';
import { freePort } from '../support/port.ts';
import { startProcess } from '../support/process.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import {
  eventually,
  isAlive,
  launchWorkers,
  list,
  startWorkers,
  untilServing,
  type Workers,
  withRequestInFlight,
  workersEnvironment,
} from '../support/workers.ts';

const kill = (pid: number | undefined, signal: NodeJS.Signals = 'SIGKILL') => process.kill(pid as number, signal);

/** Waits for the next process that a gateway starts. */
async function nextChild({ child }: Workers, known: readonly number[]): Promise<number> {
  const fresh = () => childrenOf(child.pid as number).find((pid) => !known.includes(pid));
  await expect.poll(fresh, { interval: 2 }).toBeDefined();
  return fresh() as number;
}

/** A gateway for tests that leave it as they found it. */
const workers = await startWorkers();

test('a killed worker is replaced, each time after a longer delay, while the other one serves', async () => {
  const key = await workers.issueKey();
  for (let crash = 1; crash <= 3; crash++) {
    const [first, second] = workers.pids();
    kill(first);
    await eventually(() => workers.logged('worker exited').length).toBe(crash);
    for (let sent = 0; sent < 20; sent++) expect((await list(workers, key)).status).toBe(200);
    await eventually(() => workers.pids()[0]).not.toBe(first);
    expect(workers.pids()[1]).toBe(second);
  }
  expect(workers.logged('worker exited')[0]).toMatchObject({ level: 50, worker: 1, code: null, signal: 'SIGKILL' });
  expect(workers.logged('worker restarts').map(({ waitMs }) => waitMs)).toEqual([100, 200, 400]);
  expect((await workers.admin('/metrics')).text).toMatch(/^gateway_worker_crashes_total 3$/m);
});

test('workers that cannot start are retried with growing delays and a logged reason, and the gateway is not ready', async () => {
  const port = await freePort();
  const workers = await startWorkers({ PORT: String(port) });
  expect((await workers.admin('/readyz')).status).toBe(200);
  for (const pid of workers.pids()) kill(pid);
  const thief = net.createServer();
  thief.on('error', () => setTimeout(() => thief.listen(port, '127.0.0.1'), 1));
  thief.listen(port, '127.0.0.1');
  cleanUp(() => thief.close());
  await untilServing(workers, 0);
  expect(await workers.admin('/readyz')).toMatchObject({
    status: 503,
    json: { message: 'No worker is serving clients.' },
  });
  await eventually(() => workers.logged('worker exited').length).toBeGreaterThanOrEqual(2 + 2);
  expect(workers.logged('worker exited').at(-1)).toMatchObject({
    code: 1,
    said: `Cannot listen on 127.0.0.1:${port}: another program uses this address. Stop it, or set PORT to a free port.`,
  });
  const waits = Map.groupBy(workers.logged('worker restarts'), ({ worker }) => worker);
  for (const of of waits.values())
    expect(of.map(({ waitMs }) => waitMs)).toEqual([100, 200, 400, 800, 1_600, 3_200].slice(0, of.length));
  thief.close();
  await untilServing(workers, 2);
  expect((await workers.admin('/readyz')).status).toBe(200);
  expect((await list(workers, await workers.issueKey())).status).toBe(200);
});

test('a rolling restart is aborted if the new worker does not start, and the old workers continue', async () => {
  const [before, restarts] = [childrenOf(workers.child.pid as number), workers.logged('worker restarts').length];
  workers.child.kill('SIGHUP');
  kill(await nextChild(workers, before));
  await eventually(() => workers.logged('rolling restart aborted: the new worker did not start').length).toBe(1);
  expect(childrenOf(workers.child.pid as number)).toEqual(before);
  expect(workers.logged('worker restarts')).toHaveLength(restarts);
  expect((await list(workers, await workers.issueKey())).status).toBe(200);
});

test('requests for a restart during a restart cause one more restart afterwards', async () => {
  const begun = () => workers.logged('rolling restart begins').length;
  const before = begun();
  workers.child.kill('SIGHUP');
  await eventually(begun).toBe(before + 1);
  for (let more = 0; more < 3; more++) {
    workers.child.kill('SIGHUP');
    await sleep(20);
  }
  // On a busy machine, the two restarts can take half a minute.
  await expect.poll(() => workers.logged('rolling restart done').length, { timeout: 90_000 }).toBe(2);
  await sleep(300);
  expect(begun()).toBe(before + 2);
});

test('a connection that is idle when its worker is replaced serves one more request and then closes', async () => {
  const key = await workers.issueKey();
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  let connections = 0;
  agent.createConnection = (options) => {
    connections += 1;
    return net.connect(options as net.NetConnectOpts);
  };
  cleanUp(() => agent.destroy());
  expect((await list(workers, key, agent)).headers.connection).toBe('keep-alive');
  const served = workers.pids();
  workers.child.kill('SIGHUP');
  const use = async () => (await list(workers, key, agent)).headers.connection;
  await expect.poll(use, { interval: 300, timeout: 30_000 }).toBe('close');
  expect(connections).toBe(1);
  await eventually(() => served.some(isAlive)).toBe(false);
});

test('a primary that dies while a worker starts leaves no worker behind', async () => {
  const proxy = await startFaultProxy((await emptyDatabase()).url);
  const workers = await startWorkers({ REDIS_URL: proxy.url });
  const before = workers.pids();
  const connections = proxy.connections;
  proxy.set({ kind: 'black-hole' });
  workers.child.kill('SIGHUP');
  const starting = await nextChild(workers, before);
  cleanUp(() => isAlive(starting) && kill(starting));
  // The new worker waits for Redis before it serves.
  await expect.poll(() => proxy.connections, { interval: 5, timeout: 30_000 }).toBeGreaterThan(connections);
  workers.child.kill('SIGKILL');
  await eventually(() => [...before, starting].some(isAlive)).toBe(false);
});

test('Ctrl-C, which reaches every process, lets requests finish, and a second Ctrl-C does not', async () => {
  const { workers, inFlight, answer } = await withRequestInFlight();
  const pids = workers.pids();
  const pressCtrlC = () => {
    for (const pid of [...pids, workers.child.pid as number].filter(isAlive)) kill(pid, 'SIGINT');
  };
  pressCtrlC();
  await eventually(() => pids.filter(isAlive).length).toBe(1);
  expect(isAlive(workers.child.pid as number)).toBe(true);
  pressCtrlC();
  expect((await workers.ended).code).toBe(1);
  await expect(inFlight).rejects.toMatchObject({ code: 'ECONNRESET' });
  await eventually(() => pids.some(isAlive)).toBe(false);
  answer();
});

test.for([
  ['workers first', 0],
  ['the primary first', 1],
] as const)('requests in flight finish after a supervisor sends SIGTERM to every process, %s', async ([, turn]) => {
  const { workers, inFlight, answer } = await withRequestInFlight();
  const steps = [() => workers.pids().forEach((pid) => void kill(pid, 'SIGTERM')), () => workers.child.kill('SIGTERM')];
  steps[turn]?.();
  await eventually(() => workers.logged('stopping').filter(({ worker }) => worker !== undefined).length).toBe(2);
  steps[1 - turn]?.();
  await eventually(async () => (await workers.admin('/readyz')).status).toBe(503);
  answer();
  expect(await inFlight).toMatchObject({ status: 200, headers: { connection: 'close' } });
  expect((await workers.ended).code).toBe(0);
});

/** All workers except the first are delayed at the start. */
const LATE = { WORKERS: '3', NODE_OPTIONS: `--import ${new URL('../support/starts-late.ts', import.meta.url)}` };

test.for(['SIGTERM', 'SIGINT'] as const)(
  '%s while the last workers start lets the first one finish its requests and leaves no worker behind',
  async (signal) => {
    const { workers, inFlight, answer } = await withRequestInFlight(LATE, launchWorkers);
    expect((await workers.admin('/readyz')).status).toBe(200);
    const pids = childrenOf(workers.child.pid as number);
    expect(pids).toHaveLength(3);
    await eventually(workers.pids).toHaveLength(1);
    workers.child.kill(signal);
    await eventually(async () => (await workers.admin('/readyz')).status).toBe(503);
    if (signal === 'SIGTERM') expect((await send(`${workers.gateway}/v1/pets`)).headers.connection).toBe('close');
    answer();
    expect(await inFlight).toMatchObject({ status: 200, headers: { connection: 'close' } });
    expect((await workers.ended).code).toBe(0);
    expect(pids.some(isAlive)).toBe(false);
    expect(workers.logged('worker exited')).toEqual([]);
  },
);

test('the first start of a worker is not a fault, and one that fails while another worker serves is reported and retried', async () => {
  const workers = await launchWorkers({ ...LATE, WORKERS: '2', ENDS_THEN: 'yes' });
  const detail = async () => ((await workers.admin('/readyz')).json as { detail?: string }).detail ?? '';
  const findings = async () => ((await workers.admin('/doctor')).json as DoctorAnswer).findings;
  expect(await detail()).not.toContain('worker');
  const found = (await findings()).filter(({ about }) => about === 'worker 2');
  expect(found).toMatchObject([{ status: 'warning', found: 'is starting' }]);
  expect(workers.logged('worker exited')).toEqual([]);
  await eventually(detail).toMatch(/^worker 2 is not running \(fault since /);
  await eventually(() => workers.logged('worker restarts').map(({ waitMs }) => waitMs)).toEqual([100, 200]);
  expect(workers.logged('worker exited')[0]).toMatchObject({ worker: 2, code: 3 });
  expect((await workers.admin('/metrics')).text).toMatch(/^gateway_worker_crashes_total 2$/m);
  expect((await list(workers, await workers.issueKey())).status).toBe(200);
  workers.child.kill('SIGTERM');
  expect((await workers.ended).code).toBe(0);
});

test('SIGTERM before a worker serves stops the start immediately and leaves no worker behind', async () => {
  const { child, ended } = startProcess(process.execPath, ['gateway/main.ts'], await workersEnvironment(LATE));
  await eventually(() => childrenOf(child.pid as number)).toHaveLength(3);
  const pids = childrenOf(child.pid as number);
  child.kill('SIGTERM');
  expect(await ended).toMatchObject({ code: 0, err: '', out: expect.not.stringContaining('worker is serving') });
  expect(pids.some(isAlive)).toBe(false);
});
