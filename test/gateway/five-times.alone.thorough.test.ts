import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { usageOf } from '../bench/machine/usage.ts';
import { idOf } from '../support/api-key.ts';
import { slowCore } from '../support/faulty-core.ts';
import { connectRaw } from '../support/raw-client.ts';
import { quantile } from '../support/statistics.ts';
import { fact, TIMED } from '../support/timed.ts';
import { eventually, launchWorkers } from '../support/workers.ts';

interface Sent {
  readonly status: number;
  /** The time from the scheduled start to the end of its response. */
  readonly ms: number;
  /** When its response was complete, by performance.now(). */
  readonly at: number;
  readonly headers: http.IncomingHttpHeaders;
}

/** Sends requests at a fixed rate without waiting for responses. A request without a response has status 0. */
async function openLoop(url: string, key: string, ratePerSecond: number, seconds: number): Promise<Sent[]> {
  const agent = new http.Agent({ keepAlive: true });
  const startedAt = performance.now();
  const under: Promise<Sent>[] = [];
  while (under.length < ratePerSecond * seconds) {
    const due = Math.floor(((performance.now() - startedAt) / 1_000) * ratePerSecond);
    while (under.length < due) under.push(ask(url, key, agent, startedAt + (under.length / ratePerSecond) * 1_000));
    await sleep(1);
  }
  const sent = await Promise.all(under);
  agent.destroy();
  return sent;
}

function ask(url: string, key: string, agent: http.Agent, due: number): Promise<Sent> {
  const { promise, resolve } = Promise.withResolvers<Sent>();
  const answered = (status: number, headers: http.IncomingHttpHeaders = {}) => {
    const at = performance.now();
    resolve({ status, ms: at - due, at, headers });
  };
  const request = http.get(url, { agent, headers: { authorization: `Bearer ${key}` } }, (response) => {
    response.resume();
    response.once('end', () => answered(response.statusCode ?? 0, response.headers));
  });
  request.once('error', () => answered(0));
  return promise;
}

/** Tests a gateway under five times the load that its core can serve. */

const CAPACITY = 150;

async function setUp() {
  const CORE_URL = await slowCore(CAPACITY);
  const gateway = await launchWorkers({ WORKERS: '1', REDIS_URL: '', CORE_URL, CORE_TIMEOUT_MS: '2000' });
  return {
    url: `${gateway.gateway}/v1/pets`,
    residentMegabytes: () => usageOf(gateway.child.pid as number).residentMegabytes,
    /** Returns how long shed requests took in the gateway according to its log, in ms. */
    timesShed: () =>
      [...gateway.out().matchAll(/"outcome":"shed".*"durationMs":([\d.]+)/g)].map((line) => Number(line[1])),
    issueKey: () => gateway.issueKey(),
    admitted: async (key: string) =>
      ((await gateway.admin(`/keys/${idOf(key)}`)).json as { admitted: number }).admitted,
  };
}

const withStatus = (sent: readonly Sent[], status: number) => sent.filter((one) => one.status === status);

/** Returns the number of successful responses per second during the load. */
function goodput(sent: readonly Sent[], startedAt: number, seconds: number): number {
  return withStatus(sent, 200).filter(({ at }) => at < startedAt + seconds * 1_000).length / seconds;
}

test(
  'at five times the capacity, goodput stays at its peak, and excess requests are refused immediately and cheaply',
  TIMED,
  async () => {
    const { url, issueKey, admitted, residentMegabytes, timesShed } = await setUp();
    const key = await issueKey();
    await openLoop(url, key, CAPACITY / 2, 1);
    let startedAt = performance.now();
    const peak = goodput(await openLoop(url, key, CAPACITY, 3), startedAt, 3);
    const before = { admitted: await admitted(key), shed: timesShed().length, megabytes: residentMegabytes() };
    startedAt = performance.now();
    const sent = await openLoop(url, key, 5 * CAPACITY, 6);
    const good = goodput(sent, startedAt, 6);
    const shed = withStatus(sent, 503);
    const toClient = (share: number) =>
      quantile(
        shed.map(({ ms }) => ms),
        share,
      ).toFixed(1);
    const inGateway = (share: number) => quantile(timesShed().slice(before.shed), share);
    const grown = residentMegabytes() - before.megabytes;
    process.stdout.write(
      `peak ${peak.toFixed(0)}/s; at ${5 * CAPACITY}/s: ${good.toFixed(0)}/s good; ${shed.length} shed, in the gateway for ` +
        `${inGateway(0.5).toFixed(1)} ms (p99 ${inGateway(0.99).toFixed(1)}), answered in ${toClient(0.5)} (p99 ${toClient(0.99)}); ` +
        `${grown.toFixed(0)} MB more\n`,
    );
    const charged = (await admitted(key)) - before.admitted;
    await fact(async () => {
      // The last log lines may still be on their way.
      await eventually(() => timesShed().length - before.shed).toBe(shed.length);
      expect(charged).toBe(sent.length - shed.length);
      expect(new Set(shed.map(({ headers }) => headers['retry-after']))).toEqual(new Set(['1']));
    });
    expect(good).toBeGreaterThan(0.9 * peak);
    expect(sent.length - withStatus(sent, 200).length - shed.length).toBe(0);
    expect(inGateway(0.95)).toBeLessThan(20);
    expect(grown).toBeLessThan(100);
  },
);

test('a greedy client leaves others their share, whether it uses one connection or a thousand', TIMED, async () => {
  const { url, issueKey } = await setUp();
  const [greedy, modest] = [await issueKey(), await issueKey()];
  const flood = openLoop(url, greedy, 5 * CAPACITY, 4);
  await sleep(1_000);
  const during = await openLoop(url, modest, 10, 2.5);
  expect(withStatus(during, 200).length).toBeGreaterThanOrEqual(0.95 * during.length);
  expect(withStatus(await flood, 503).length).toBeGreaterThan(500);

  // At most sixteen are in progress at a time, so none has to be shed.
  const count = 4 * CAPACITY;
  const answers = pipeline(url, greedy, count);
  await sleep(200);
  const meanwhile = await openLoop(url, modest, 10, 2);
  expect(withStatus(meanwhile, 200).length).toBeGreaterThanOrEqual(0.95 * meanwhile.length);
  const statuses = await answers;
  expect(statuses).toHaveLength(count);
  expect(new Set(statuses)).toEqual(new Set([200]));
});

/** Sends many pipelined requests on one connection. @returns the statuses of their responses */
async function pipeline(url: string, key: string, count: number): Promise<number[]> {
  const { socket, received } = await connectRaw(url);
  socket.write(
    `GET ${new URL(url).pathname} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n\r\n`.repeat(count),
  );
  const statuses = () => [...received().matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => Number(status));
  await eventually(() => statuses().length).toBe(count);
  return statuses();
}
