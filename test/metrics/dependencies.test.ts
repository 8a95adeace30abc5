import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { startCore } from '../../core/core.ts';
import type { DoctorAnswer, TrafficAnswer } from '../../gateway/operators/api/answers.ts';
import { coresOn } from '../support/addressed-cores.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctl } from '../support/ctl.ts';
import { startDnsServer } from '../support/dns-server.ts';
import { bareCore, faultyCore, listeningCore, OK } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { readableLog } from '../support/log.ts';
import { eventuallyScraped, scrape } from '../support/metrics.ts';
import { freePort } from '../support/port.ts';
import { ownRedis } from '../support/redis-database.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

// Each command starts a process, which is slow on a busy machine.
const PATIENT = { timeout: 60_000 };

const trafficOf = async (stack: Stack) => (await stack.admin('GET', '/traffic')).json as TrafficAnswer;

const coresEventually = (stack: Stack) => expect.poll(async () => (await trafficOf(stack)).cores);

const findingsOn = async (stack: Stack, about: string) =>
  ((await stack.admin('GET', '/doctor')).json as DoctorAnswer).findings.filter((one) => one.about === about);

/** A core that can be stopped. */
async function ownCore(port: number) {
  const DATABASE_URL = `sqlite:${await temporaryFolder()}/other.db`;
  const core = await startCore(readCoreSettings({ PORT: String(port), DATABASE_URL }), readableLog().logger);
  cleanUp(() => core.stop(0));
  return core;
}

test(
  'a single core is unknown at first, up and ready from its first answer, and down when it is unreachable',
  PATIENT,
  async () => {
    const begun = Date.now();
    const port = await freePort();
    const origin = `http://127.0.0.1:${port}`;
    const core = await ownCore(port);
    const stack = await startStack({ CORE_URL: origin });
    const fresh = await trafficOf(stack);
    expect([fresh.processes, fresh.redis.mode]).toEqual([1, 'embedded']);
    expect(fresh.cores).toEqual([
      { origin, state: 'unproven', seenBy: 1, since: expect.any(String), inFlight: 0, waiting: 0, limit: 2_048 },
    ]);
    const key = await stack.issueKey();
    expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
    const [up] = (await trafficOf(stack)).cores;
    expect(up).toMatchObject({ state: 'up', inFlight: 0, lastAnswer: { ms: expect.any(Number) } });
    expect(Date.parse(up?.lastAnswer?.at ?? '')).toBeGreaterThanOrEqual(begun);
    expect(up?.lastFault).toBe(undefined);
    expect(await findingsOn(stack, `requests to core ${origin}`)).toEqual([
      expect.objectContaining({
        status: 'good',
        found: expect.stringMatching(/^0 of at most 2048 in progress, 0 waiting; the last response took \d+ ms$/),
      }),
    ]);

    await core.stop(0);
    expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(502);
    const [out] = (await trafficOf(stack)).cores;
    expect(out).toMatchObject({ state: 'out', reason: expect.stringContaining('ECONNREFUSED') });
    expect(out?.lastFault).toMatchObject({ kind: 'unreachable' });
    const ready = async () => (await scrape(stack.adminUrl)).sum('gateway_upstream_ready');
    expect(await ready()).toBe(0);
    expect(Date.parse(out?.since ?? '')).toBeGreaterThanOrEqual(Date.parse(up?.lastAnswer?.at ?? ''));
    const { out: text, code } = await ctl(stack, 'doctor');
    expect([code, text]).toEqual([
      1,
      expect.stringMatching(/^warning {2}requests to core \S+ +it is not in use: connect ECONNREFUSED 127/m),
    ]);
    await ownCore(port);
    expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
    expect(await ready()).toBe(1);
  },
);

test('core failures are counted by kind, and readiness is reported', async () => {
  const unreachable = `http://127.0.0.1:${await freePort()}`;
  const broken = await faultyCore((socket) => socket.destroy());
  const silent = await bareCore(() => {});
  const strict = await faultyCore((socket) => socket.write('HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n'));
  for (const [CORE_URL, kind, ready] of [
    [unreachable, 'unreachable', 0],
    [broken, 'broken', 1],
    [silent, 'timeout', 1],
    [strict, 'token', 1],
  ] as const) {
    const stack = await startStack({ CORE_URL, CORE_TIMEOUT_MS: '300' });
    const { status } = await post(`${stack.gateway}/v1/pets`, {}, { key: await stack.issueKey() });
    expect([kind, status]).toEqual([kind, kind === 'timeout' ? 504 : 502]);
    const metrics = await scrape(stack.adminUrl);
    const failed = metrics.series('gateway_upstream_errors_total').filter(({ value }) => value > 0);
    expect(failed).toEqual([{ name: 'gateway_upstream_errors_total', labels: { core: CORE_URL, kind }, value: 1 }]);
    expect([kind, metrics.sum('gateway_upstream_ready', { core: CORE_URL })]).toEqual([kind, ready]);
  }
});

test('if one of several cores stops, it is reported as down and the others as up', async () => {
  const port = await freePort();
  const [stops, { url: stays }] = [await ownCore(port), await listeningCore()];
  const origin = `http://127.0.0.1:${port}`;
  const stack = await startStack({ CORE_URL: `${origin},${stays}` });
  await coresEventually(stack).toMatchObject([
    { origin, state: 'up' },
    { origin: stays, state: 'up' },
  ]);
  await stops.stop(0);
  await coresEventually(stack).toMatchObject([
    { origin, state: 'out', reason: expect.stringContaining('ECONNREFUSED') },
    { origin: stays, state: 'up' },
  ]);
  await eventuallyScraped(stack.adminUrl, (metrics) =>
    [origin, stays].map((core) => metrics.sum('gateway_upstream_ready', { core })),
  ).toEqual([0, 1]);
  expect(await findingsOn(stack, `requests to core ${origin}`)).toMatchObject([{ status: 'warning' }]);
});

test('requests in progress, requests waiting for a connection, the limit and the duration are reported', async () => {
  const waiting: Socket[] = [];
  const slow = await faultyCore((socket) => void waiting.push(socket));
  const stack = await startStack({ CORE_URL: slow });
  const keys = await Promise.all(Array.from({ length: 66 }, () => stack.issueKey()));
  const answers = Promise.all(keys.map((key) => post(`${stack.gateway}/v1/pets`, {}, { key })));
  // There are 64 connections for writes.
  await coresEventually(stack).toMatchObject([{ inFlight: 66, waiting: 2 }]);
  const counted = await scrape(stack.adminUrl);
  const counts = ['in_flight', 'queued', 'limit'].map((name) =>
    counted.sum(`gateway_upstream_${name}`, { core: slow }),
  );
  expect(counts).toEqual([66, 2, 2_048]);
  const answering = setInterval(() => {
    for (const socket of waiting.splice(0)) socket.write(OK);
  }, 5);
  cleanUp(() => clearInterval(answering));
  expect((await answers).map(({ status }) => status)).toEqual(Array(66).fill(200));
  await coresEventually(stack).toMatchObject([{ inFlight: 0, waiting: 0 }]);
  const after = await scrape(stack.adminUrl);
  const later = ['in_flight', 'queued', 'duration_seconds_count'].map((name) =>
    after.sum(`gateway_upstream_${name}`, { core: slow }),
  );
  expect(later).toEqual([0, 0, 66]);
  expect(after.sum('gateway_upstream_duration_seconds_sum', { core: slow })).toBeGreaterThan(0);
});

test('a core that is no longer in DNS is shown as draining until it has answered', async () => {
  const dns = await startDnsServer();
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  const { port, all } = await coresOn(['127.0.0.1']);
  const slow = await faultyCore(
    (socket, head) => void (head.startsWith('GET /readyz') ? socket.end(OK) : ended.then(() => socket.write(OK))),
  );
  const [here, leaves] = [
    { target: '127.0.0.1', port },
    { target: '127.0.0.1', port: Number(new URL(slow).port) },
  ];
  dns.set('_core._tcp.cores.test', [leaves]);
  const stack = await startStack({ CORE_URL: 'http+srv://_core._tcp.cores.test' });
  const answer = post(`${stack.gateway}/v1/pets`, {}, { key: await stack.issueKey() });
  await coresEventually(stack).toMatchObject([{ origin: slow, inFlight: 1 }]);
  dns.set('_core._tcp.cores.test', [here]);
  await coresEventually(stack).toMatchObject([
    { origin: `http://127.0.0.1:${all.length && port}` },
    { origin: slow, state: 'draining', inFlight: 1 },
  ]);
  expect(await findingsOn(stack, `requests to core ${slow}`)).toMatchObject([
    { found: 'it was removed from CORE_URL; 1 in progress' },
  ]);
  end();
  expect((await answer).status).toBe(200);
  await coresEventually(stack).toMatchObject([{ origin: `http://127.0.0.1:${port}` }]);
  await coresEventually(stack).toHaveLength(1);
});

test('the connection to Redis, its last call and its missed deadlines are reported', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '2000' });
  const redis = () => expect.poll(async () => (await trafficOf(stack)).redis);
  const fresh = (await trafficOf(stack)).redis;
  expect(fresh).toEqual({ mode: 'single', connected: 1, since: expect.any(String), p99: null, missedDeadlines: 0 });
  const key = await stack.issueKey();
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  const asked = (await trafficOf(stack)).redis;
  expect(asked).toMatchObject({ lastCall: { ms: expect.any(Number) }, p99: expect.any(Number) });

  server.pause();
  // This gateway knows the key, so it can decide without Redis.
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  server.resume();
  expect((await trafficOf(stack)).redis.missedDeadlines).toBeGreaterThan(0);
  await server.stop();
  await redis().toMatchObject({ connected: 0 });
  const lost = (await trafficOf(stack)).redis;
  expect(Date.parse(lost.since ?? '')).toBeGreaterThan(Date.parse(fresh.since ?? ''));
  await server.restart();
  await redis().toMatchObject({ connected: 1 });
  expect(Date.parse((await trafficOf(stack)).redis.since ?? '')).toBeGreaterThan(Date.parse(lost.since ?? ''));
});
