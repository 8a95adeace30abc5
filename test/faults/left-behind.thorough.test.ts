import { spawnSync } from 'node:child_process';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { faultyCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { freePort } from '../support/port.ts';
import { startProcess, startService } from '../support/process.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { TIMED } from '../support/timed.ts';
import {
  eventually,
  isAlive,
  launchWorkers,
  startWorkers,
  suspend,
  type Workers,
  workersEnvironment,
} from '../support/workers.ts';

/** Tests workers that outlive their primary because they hang. The next gateway kills them, and no other process. */

const HUNG = 'workers of an earlier primary hung and were killed';
const ONE = { WORKERS: '1' };
const workerOf = (workers: Workers): number => workers.pids()[0] as number;

function listens(port: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(Number(port), '127.0.0.1', () => resolve(true)).on('error', () => resolve(false));
  return promise.finally(() => socket.destroy());
}

test(
  'a worker that hangs while it drains is killed 10 s after the next start of a gateway on any port',
  TIMED,
  async () => {
    const arrived = Promise.withResolvers<void>();
    const CORE_URL = await faultyCore(() => arrived.resolve());
    const [PORT, REDIS_URL] = [String(await freePort()), (await emptyDatabase()).url];
    const workers = await startWorkers({ ...ONE, PORT, REDIS_URL, CORE_URL, CORE_TIMEOUT_MS: '60000' });
    send(`${workers.gateway}/v1/pets`, { key: await workers.issueKey() }).catch(() => {});
    await arrived.promise;
    const hung = workerOf(workers);
    workers.child.kill('SIGKILL');
    await eventually(() => listens(PORT)).toBe(false);
    suspend(hung);
    const before = performance.now();
    const [, crashed] = await Promise.all([startWorkers(ONE), startWorkers(ONE)]);
    await sleep(8_000 - (performance.now() - before));
    expect(isAlive(hung)).toBe(true);
    // A worker left behind after that gets its own ten seconds.
    const later = workerOf(crashed);
    suspend(later);
    crashed.child.kill('SIGKILL');
    // A gateway of another test may kill it first.
    await eventually(() => isAlive(hung)).toBe(false);
    expect(isAlive(later)).toBe(true);
  },
);

test('a hung worker is killed even if the next gateway on its port is started from another file', TIMED, async () => {
  const [PORT, REDIS_URL] = [String(await freePort()), (await emptyDatabase()).url];
  const workers = await startWorkers({ ...ONE, PORT, REDIS_URL });
  const hung = workerOf(workers);
  suspend(hung);
  workers.child.kill('SIGKILL');
  const environment = await workersEnvironment({ ...ONE, HOST: '0.0.0.0', PORT, REDIS_URL });
  const { out } = await startService('gateway/main.js', environment);
  expect(out()).toContain(HUNG);
  expect(isAlive(hung)).toBe(false);
});

const UNSHARE = ['unshare', '-pf', '--mount-proc'] as const;
const canUnshare = spawnSync(UNSHARE[0], [...UNSHARE.slice(1), 'true']).status === 0;

test.skipIf(!canUnshare)('a gateway in its own PID namespace is not mistaken for a dead one', TIMED, async () => {
  const [PORT, REDIS_URL] = [String(await freePort()), (await emptyDatabase()).url];
  const environment = await workersEnvironment({ ...ONE, PORT, REDIS_URL });
  const contained = await startService('gateway/main.ts', environment, UNSHARE);
  const list = async () => (await send(`${contained.addresses.gateway}/v1/pets`)).status;
  expect(await list()).toBe(401);
  const second = await startProcess(process.execPath, ['gateway/main.ts'], { ...environment, LOG_LEVEL: 'info' }).ended;
  expect([second.code, second.err]).toEqual([1, expect.stringContaining('another program uses this address')]);
  const other = await launchWorkers(ONE);
  await sleep(11_000);
  expect(other.logged(HUNG)).toEqual([]);
  expect(contained.out()).not.toContain('worker exited');
  expect(await list()).toBe(401);
});
