import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { judge } from '../support/allowance-checker.ts';
import { cleanUp } from '../support/clean-up.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { parsedLines } from '../support/log.ts';
import { type Answered, ask, startLoad } from '../support/paced-load.ts';
import { startGatewayProcess, startRig, withModes } from '../support/redis-fault.ts';
import { createKey } from '../support/redis-keys.ts';
import { fact, TIMED } from '../support/timed.ts';
import { signalAll, stall } from '../support/workers.ts';

/** A gateway stall is not a Redis outage: the replies wait in the gateway's sockets. */

const ROOMY = { minute: 1_000_000, day: 1_000_000 };
const TIGHT = 10;

const { server, redis } = await startRig();
redis.options.commandTimeout = 10_000;
await redis.hset('gateway:plans', 'free.ban_after', '1000000000');
const CORE_URL = (await listeningCore()).url;

async function start(settings: Record<string, string> = {}) {
  const gateway = await startGatewayProcess({ CORE_URL, REDIS_URL: server.url, ...settings });
  const { child, out } = gateway.process;
  return { ...gateway, pid: child.pid as number, log: parsedLines(out) };
}

type Gateway = Awaited<ReturnType<typeof start>>;

/** Shared by all tests that do not change the deadline. */
const gateway = await start();

/** Counts the local decisions among these answers, since the first of which the gateway must have logged no outage. */
async function localOf({ log }: Gateway, answers: readonly Answered[]): Promise<number> {
  // Lines arrive shortly after answers.
  const decided = await vi.waitFor(() => withModes(answers, log()));
  const since = log().slice(log().findIndex(({ requestId }) => requestId === answers[0]?.id));
  expect(since.filter(({ msg }) => msg === 'decisions are local' || msg === 'redis is unavailable')).toEqual([]);
  return decided.filter(({ mode }) => mode === 'local').length;
}

test('the script is loaded before the first decision on a connection', async () => {
  const calls = async () => {
    const stats = await redis.info('commandstats');
    return [/cmdstat_eval:calls=(\d+)/, /cmdstat_evalsha:calls=(\d+)/].map((line) =>
      Number(stats.match(line)?.[1] ?? 0),
    );
  };
  const { apiKey } = await createKey(redis, ROOMY);
  const [evals = 0, evalshas = 0] = await calls();
  expect(evals).toBeGreaterThan(0);
  await ask(gateway.url, apiKey);
  expect(await calls()).toEqual([evals, evalshas + 1]);
  await redis.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  // Primary and worker reconnect and load the script at different times.
  let again = evals;
  const isQuiet = async () => {
    const [before, now = 0] = [again, (await calls())[0]];
    again = now;
    return now > evals && now === before;
  };
  await expect.poll(isQuiet, { interval: 500, timeout: 10_000 }).toBe(true);
  await expect.poll(async () => (await ask(gateway.url, apiKey)).status).toBe(200);
  expect((await calls())[0]).toBe(again);
  await untilSettled(gateway);
});

test.for([70, 800])('a gateway that stalls for %i ms still makes shared decisions', async (ms) => {
  const { apiKey, hash } = await createKey(redis, ROOMY);
  await ask(gateway.url, apiKey);
  const load = startLoad(gateway.url, () => apiKey, { clients: 16, pauseMs: 0 });
  for (let times = 0; times < 5; times++) {
    const before = load.answers.length;
    while (load.answers.length < before + 20) await sleep(1);
    await stall(gateway.pid, ms);
  }
  await load.stop();
  expect(new Set(load.answers.map(({ status }) => status))).toEqual(new Set([200]));
  expect(await redis.hget(hash, 'admitted')).toBe(String(load.answers.length + 1));
  expect(await localOf(gateway, load.answers)).toBe(0);
});

test('a stall is no fault of the plan table, but a Redis outage is, and its end is logged', async () => {
  const { pid, log } = await start({ REDIS_TIMEOUT_MS: '1000' });
  const lines = () => log().filter(({ msg }) => String(msg).startsWith('plan table'));
  for (let times = 0; times < 2; times++) {
    // Primary and worker read the table four times a second.
    server.pause();
    await sleep(500);
    signalAll(pid, 'SIGSTOP');
    server.resume();
    await sleep(1_000);
    signalAll(pid, 'SIGCONT');
    await sleep(500);
  }
  expect(lines()).toEqual([]);
  server.pause();
  await expect.poll(lines).toHaveLength(2);
  server.resume();
  await expect.poll(lines).toHaveLength(4);
  expect(lines().map(({ level, msg }) => `${level} ${msg}`)).toEqual([
    ...Array(2).fill('50 plan table cannot be read; the last good one stays'),
    ...Array(2).fill('30 plan table can be read again'),
  ]);
  await untilSettled(gateway);
});

test('a flood of pipelined requests without a key does not open a circuit breaker', async () => {
  const { apiKey } = await createKey(redis, ROOMY);
  await ask(gateway.url, apiKey);
  const flood = startFlood(gateway.url);
  const load = startLoad(gateway.url, () => apiKey, { clients: 2, pauseMs: 5 });
  await sleep(4_000);
  flood.stop();
  await load.stop();
  expect(flood.bytes).toBeGreaterThan(100_000);
  expect(new Set(load.answers.map(({ status }) => status))).toEqual(new Set([200]));
  // On a busy machine, Redis itself may miss a deadline. With an open circuit breaker, hundreds of requests would be
  // decided locally.
  expect(await localOf(gateway, load.answers)).toBeLessThan(load.answers.length / 50);
});

/** Sends 185 kB/s of tiny requests in large batches, without waiting for responses. Reopens closed connections. */
function startFlood(gateway: string) {
  const { hostname, port } = new URL(gateway);
  const many = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(2_100);
  let isRunning = true;
  let bytes = 0;
  const connect = () => {
    const socket = net.connect(Number(port), hostname).resume();
    const timer = setInterval(() => {
      if (socket.writableLength > 0 || !socket.writable) return;
      socket.write(many);
      bytes += many.length;
    }, 320);
    socket.on('error', () => {});
    socket.on('close', () => {
      clearInterval(timer);
      if (isRunning) setTimeout(connect, 20);
    });
    sockets.push(socket);
  };
  const sockets: net.Socket[] = [];
  const stop = () => {
    isRunning = false;
    for (const socket of sockets) socket.destroy();
  };
  cleanUp(stop);
  connect();
  return {
    stop,
    get bytes() {
      return bytes;
    },
  };
}

test('a gateway with a fifth of a CPU accepts new keys and enforces limits', async () => {
  const [roomy, tight] = [await createKey(redis, ROOMY), await createKey(redis, { minute: TIGHT })];
  const fresh = await Promise.all(Array.from({ length: 100 }, () => createKey(redis)));
  await ask(gateway.url, roomy.apiKey);
  const throttle = throttled(gateway.pid);
  const loads = [
    startLoad(gateway.url, () => roomy.apiKey, { clients: 8, pauseMs: 0 }),
    startLoad(gateway.url, () => tight.apiKey, { clients: 2, pauseMs: 0 }),
    startLoad(gateway.url, () => (fresh.pop() ?? roomy).apiKey, { clients: 2, pauseMs: 10 }),
  ];
  const [, tightLoad, freshLoad] = loads;
  const isEnough = () =>
    tightLoad?.answers.some(({ status }) => status === 429) && (freshLoad?.answers.length ?? 0) > 40;
  for (await sleep(2_000); !isEnough(); ) await sleep(50);
  await Promise.all(loads.map((load) => load.stop()));
  await throttle.stop();
  const [ofRoomy, ofTight, ofFresh] = loads.map(({ answers }) => answers) as [Answered[], Answered[], Answered[]];
  expect(new Set([...ofRoomy, ...ofFresh].map(({ status }) => status))).toEqual(new Set([200]));
  expect(judge(ofTight, { capacity: TIGHT, windowMs: 60_000 }).violations).toEqual([]);
  expect(await localOf(gateway, [...ofRoomy, ...ofTight, ...ofFresh])).toBe(0);
});

/** Lets a process run for 20 ms of every 100, like the kernel's CPU quota. */
function throttled(pid: number) {
  let isRunning = true;
  cleanUp(() => {
    isRunning = false;
  });
  const ended = (async () => {
    for (; isRunning; await sleep(20)) await stall(pid, 80);
  })();
  return {
    async stop() {
      isRunning = false;
      await ended;
    },
  };
}

/** Waits for the end of any outage that a test, or a busy machine, has caused. */
async function untilSettled({ log }: Gateway): Promise<void> {
  const times = (text: string) => log().filter(({ msg }) => msg === text).length;
  await expect
    .poll(() => times('decisions are local') - times('decisions are shared again'), { timeout: 10_000 })
    .toBe(0);
}

/** Suspends Redis for `ms` during a request with a verified key and one with a new key. */
async function pauseRedis(gateway: Gateway, ms: number) {
  const [known, fresh] = [await createKey(redis, ROOMY), await createKey(redis, ROOMY)];
  await expect.poll(async () => (await ask(gateway.url, known.apiKey)).status).toBe(200);
  await untilSettled(gateway);
  server.pause();
  const answers = Promise.all([known, fresh].map(({ apiKey }) => ask(gateway.url, apiKey)));
  await sleep(ms);
  server.resume();
  const [ofKnown, ofFresh] = (await answers) as [Answered, Answered];
  return { ofKnown, ofFresh, known, fresh };
}

test('a Redis pause that is shorter than the deadline delays decisions but is not an outage', TIMED, async () => {
  const gateway = await start({ REDIS_TIMEOUT_MS: '2000' });
  const { ofKnown, ofFresh, known, fresh } = await pauseRedis(gateway, 550);
  expect([ofKnown.status, ofFresh.status]).toEqual([200, 200]);
  for (const { ms } of [ofKnown, ofFresh]) expect(ms).toBeGreaterThan(500);
  // Each request was charged once.
  await fact(async () => {
    await expect.poll(() => redis.hget(known.hash, 'admitted')).toBe('2');
    expect(await redis.hget(fresh.hash, 'admitted')).toBe('1');
  });
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  expect(metrics).toMatch(/^gateway_redis_deadlines_missed_total 0$/m);
  expect(metrics).toMatch(/^gateway_redis_nodes_away\{worker="1"\} 0$/m);
  expect(await localOf(gateway, [ofKnown, ofFresh])).toBe(0);
});

/** A request that waited for Redis to answer again would take this long. */
const PAUSE_MS = 5_000;

test('after Redis misses a deadline, decisions on verified keys are local and new keys get a 503', async () => {
  const { ofKnown, ofFresh } = await pauseRedis(gateway, PAUSE_MS);
  expect([ofKnown.status, ofFresh.status]).toEqual([200, 503]);
  for (const { ms } of [ofKnown, ofFresh]) expect(ms).toBeLessThan(PAUSE_MS / 2);
  expect(gateway.log().findLast(({ msg }) => msg === 'decisions are local')).toMatchObject({
    reason: 'Redis did not answer in time.',
  });
});
