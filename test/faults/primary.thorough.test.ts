import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { childrenOf } from '../support/children.ts';
import { send } from '../support/http.ts';
import { freePort } from '../support/port.ts';
import { emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { TIMED } from '../support/timed.ts';
import {
  eventually,
  isAlive,
  list,
  replaced,
  startWorkers,
  suspend,
  untilServing,
  type Workers,
  withRequestInFlight,
} from '../support/workers.ts';

/** Restarts, crashes and hangs of a primary and of its workers. */

const ONE = { WORKERS: '1' };
const readyz = async (workers: Workers) => (await workers.admin('/readyz')).status;
const kill = (pid: number): void => void process.kill(pid, 'SIGKILL');

/** Starts a gateway with one worker, and its Redis, which is down at first and loses all data whenever it stops. */
async function startBoth(REDIS_TIMEOUT_MS: string) {
  const redis = await ownRedis();
  await redis.stop();
  return { redis, workers: await startWorkers({ ...ONE, REDIS_URL: redis.url, REDIS_TIMEOUT_MS }) };
}

type Both = Awaited<ReturnType<typeof startBoth>>;

/** Shared by most tests. Its workers are replaced before its primary detects that Redis hangs. */
const patient = await startBoth('15000');
/** Shared by tests in which the primary must detect that Redis hangs. */
const hasty = await startBoth('250');

/** Gives a gateway an empty Redis, and waits until its primary, which has its own connection, uses it too. */
async function withRedis({ redis, workers }: Both): Promise<Both> {
  await redis.restart();
  await eventually(() => readyz(workers)).toBe(200);
  // Not sent by `list`, which expects a log line for each 503: a worker that is killed soon loses its last ones.
  const headers = async () => ({ authorization: `Bearer ${await workers.issueKey()}` });
  await eventually(async () => (await fetch(`${workers.gateway}/v1/pets`, { headers: await headers() })).status).toBe(
    200,
  );
  // A gateway that sees that Redis has lost changes counts every key as unverified once, within a quarter of a second.
  await sleep(1_000);
  return { redis, workers };
}

/** The time from the last exit of the worker until its replacement began to serve. */
function replacementMs({ logged }: Workers): number {
  const [ended, serves] = ['worker exited', 'worker is serving'].map((msg) => logged(msg).at(-1)?.time);
  return Date.parse(String(serves)) - Date.parse(String(ended));
}

test('a gateway is ready once it has loaded the plans and the script from Redis, and stays ready without Redis', async () => {
  const { redis, workers } = patient;
  expect(await workers.admin('/readyz')).toMatchObject({ status: 503, json: { code: 'unavailable' } });
  await sleep(1_000);
  expect(await readyz(workers)).toBe(503);
  await withRedis(patient);
  await redis.stop();
  for (let looks = 0; looks < 20; looks++, await sleep(100)) expect(await readyz(workers)).toBe(200);
});

test('SIGHUP at any time during a start kills no process and causes a rolling restart', async () => {
  const NODE_OPTIONS = `--import ${new URL('../support/hang-up-while-loading.ts', import.meta.url)}`;
  const workers = await startWorkers({ ...ONE, NODE_OPTIONS });
  await eventually(() => workers.logged('rolling restart done').length).toBeGreaterThan(0);
  expect(workers.logged('worker exited')).toEqual([]);
  expect(await readyz(workers)).toBe(200);
});

test.for([
  ['during a rolling restart', ({ child }: Workers): void => void child.kill('SIGHUP')],
  ['while a crashed worker is replaced', (workers: Workers): void => kill(workers.pids()[0] as number)],
  ['and immediately gets a new key from an operator', undefined],
] as const)(
  "the operators' plans, not the built-in ones, are restored in a Redis that comes back empty %s",
  async ([, disturb]) => {
    const { redis, workers } = await withRedis(patient);
    expect((await workers.change('PATCH', '/plans/free', { minute: 777 })).status).toBe(200);
    await redis.stop();
    if (disturb !== undefined) {
      await sleep(500);
      disturb(workers);
      await sleep(1_500);
    }
    await redis.restart();
    await eventually(async () => await workers.issueKey()).toBeDefined();
    await sleep(2_500);
    expect((await workers.admin('/plans')).json).toMatchObject({ free: { minute: 777 } });
    const { activity } = (await workers.admin('/activity?target=free')).json as { activity: { reason: string }[] };
    expect(activity[0]?.reason).toContain('was written back');
  },
);

test('a new worker waits for Redis while the old one serves verified keys', async () => {
  const { redis, workers } = await withRedis(patient);
  const key = await workers.issueKey();
  expect((await list(workers, key)).status).toBe(200);
  const before = workers.pids();
  const [restarts, exits] = [workers.logged('rolling restart done').length, workers.logged('worker exited').length];
  await redis.stop();
  workers.child.kill('SIGHUP');
  for (let waited = 0; waited < 50; waited++, await sleep(100)) expect((await list(workers, key)).status).toBe(200);
  expect(workers.pids()).toEqual(before);
  expect(childrenOf(workers.child.pid as number)).toHaveLength(2);
  await redis.restart();
  await eventually(() => workers.logged('rolling restart done').length).toBe(restarts + 1);
  expect(workers.pids()).not.toEqual(before);
  expect(workers.logged('worker exited')).toHaveLength(exits);
});

test(
  'the replacement of a crashed worker serves immediately without Redis, with the last known plans, keys and levels',
  TIMED,
  async () => {
    const { redis, workers } = await withRedis(patient);
    await workers.change('PATCH', '/plans/free', { day: 4_321 });
    const documented = async () => (await send(`${workers.gateway}/docs/`)).text.includes('4,321');
    await eventually(documented).toBe(true);
    const key = await workers.issueKey({ plan: 'enterprise', minute: 1_000, day: 20 });
    expect((await list(workers, key)).headers['x-ratelimit-remaining']).toBe('19');
    await redis.stop();
    for (let left = 18; left >= 10; left--)
      expect((await list(workers, key)).headers['x-ratelimit-remaining']).toBe(String(left));
    await replaced(workers, kill);
    expect(await readyz(workers)).toBe(200);
    expect((await list(workers, key)).headers['x-ratelimit-remaining']).toBe('9');
    expect(await documented()).toBe(true);
    // Redis stays away, so a replacement that waited for it would never serve.
    expect(replacementMs(workers)).toBeLessThan(7_500);
  },
);

test('the replacement of the only worker serves a key that was last used before a Redis outage', async () => {
  const { redis, workers } = await withRedis(hasty);
  const key = await workers.issueKey({ plan: 'enterprise', minute: 1_000, day: 30 });
  for (let left = 29; left >= 10; left--)
    expect((await list(workers, key)).headers['x-ratelimit-remaining']).toBe(String(left));
  const before = notedByPrimary(workers);
  redis.pause();
  await eventually(() => notedByPrimary(workers)).toBe(before + 1);
  // On a busy machine, the primary needs a while to collect the worker's keys.
  await sleep(2_000);
  await replaced(workers, kill);
  expect(await list(workers, key)).toMatchObject({ status: 200, headers: { 'x-ratelimit-remaining': '9' } });
});

/** How often the primary detected a Redis outage. */
const notedByPrimary = (workers: Workers): number =>
  workers.logged('plan table cannot be read; the last good one stays').filter(({ worker }) => worker === undefined)
    .length;

test('a key that was last used before a reload is served when Redis hangs, even if the old worker stalls', async () => {
  // Not a shared gateway: after its Redis has lost its data, it notifies its worker, and kills one that stalls then.
  const redis = await ownRedis();
  const workers = await startWorkers({ ...ONE, REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '250' });
  const key = await workers.issueKey({ plan: 'enterprise', minute: 1_000, day: 30 });
  expect((await list(workers, key)).headers['x-ratelimit-remaining']).toBe('29');
  const [old] = workers.pids() as [number];
  // If it were suspended later, a busy machine could replace it before the test notices that the reload has begun.
  suspend(old);
  workers.child.kill('SIGHUP');
  await eventually(() => workers.logged('worker is serving').length).toBe(2);
  await sleep(1_500);
  process.kill(old, 'SIGCONT');
  await eventually(() => workers.logged('rolling restart done').length).toBe(1);
  redis.pause();
  expect(await list(workers, key)).toMatchObject({ status: 200, headers: { 'x-ratelimit-remaining': '28' } });
});

test('a worker that crashes when Redis begins to hang is replaced immediately', TIMED, async () => {
  const { redis, workers } = await withRedis(patient);
  redis.pause();
  await replaced(workers, kill);
  expect(replacementMs(workers)).toBeLessThan(7_500);
  redis.resume();
  await eventually(async () => (await list(workers, await workers.issueKey())).status).toBe(200);
});

test('a worker that hangs is replaced', async () => {
  const workers = await startWorkers(ONE);
  await replaced(workers, suspend);
  expect(workers.logged('worker exited')).toMatchObject([
    { worker: 1, signal: 'SIGKILL', said: 'The worker sent nothing for 10 s.' },
  ]);
  expect((await list(workers, await workers.issueKey())).status).toBe(200);
});

test('the workers of a dead primary exit within 10 s, even if a response never arrives', TIMED, async () => {
  const { workers, inFlight } = await withRequestInFlight({ CORE_TIMEOUT_MS: '60000' });
  const pids = workers.pids();
  workers.child.kill('SIGKILL');
  const before = performance.now();
  await eventually(() => pids.some(isAlive)).toBe(false);
  expect(performance.now() - before).toBeLessThan(10_000);
  await expect(inFlight).rejects.toMatchObject({ code: 'ECONNRESET' });
});

test('a successor takes over the port of a dead primary and kills only its hanging worker', TIMED, async () => {
  const [PORT, { workers: other }] = [String(await freePort()), await withRedis(patient)];
  const { url: REDIS_URL } = await emptyDatabase();
  const { workers, inFlight, answer } = await withRequestInFlight({ PORT, REDIS_URL, CORE_TIMEOUT_MS: '60000' });
  const pids = workers.pids();
  const hung = pids.find((pid) => !hasConnections(pid, PORT)) as number;
  const draining = pids.find((pid) => pid !== hung) as number;
  suspend(hung);
  workers.child.kill('SIGKILL');
  // It must start within the 10 s after which the draining worker exits.
  const successor = await startWorkers({ ...ONE, PORT, REDIS_URL });
  expect(successor.logged('workers of an earlier primary hung and were killed')).toMatchObject([{ pids: [hung] }]);
  expect([isAlive(hung), isAlive(draining)]).toEqual([false, true]);
  expect((await list(successor, await successor.issueKey())).status).toBe(200);
  answer();
  expect(await inFlight).toMatchObject({ status: 200, text: '[]' });
  expect((await list(other, await other.issueKey())).status).toBe(200);
  await untilServing(other, 1);
});

/** Whether a process has an open client connection on this port. */
function hasConnections(pid: number, port: string): boolean {
  const at = `:${Number(port).toString(16).toUpperCase().padStart(4, '0')}`;
  const lines = readFileSync(`/proc/${pid}/net/tcp`, 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/));
  const accepted = lines.filter(([, local, , state]) => local?.endsWith(at) && state === '01').map((line) => line[9]);
  const fds = readdirSync(`/proc/${pid}/fd`);
  return fds.some((fd) => accepted.some((inode) => readlink(`/proc/${pid}/fd/${fd}`) === `socket:[${inode}]`));
}

function readlink(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}
