import { once } from 'node:events';
import http from 'node:http';
import net, { type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { faultyCore, OK } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { parsedLines } from '../support/log.ts';
import { startService } from '../support/process.ts';
import { ADMIN_TOKEN, temporaryFolder, UNLIMITED } from '../support/stack.ts';
import { quantile } from '../support/statistics.ts';
import { TIMED } from '../support/timed.ts';

const CLIENTS = 1_000;
const LIMIT_MS = 2_000;
const LIMITS = {
  headersMs: LIMIT_MS,
  requestMs: LIMIT_MS,
  answerMs: LIMIT_MS,
  keepAliveMs: LIMIT_MS,
  checkEveryMs: 250,
};
/** Node keeps a connection a second longer than announced, because a request may arrive while it closes. */
const LATE_MS = 1_000;
/** Tolerances: the machine handles both ends of a thousand connections. */
const EARLY_MS = 500;
const NOISE_MS = 1_500;
/** Shorter times never fail the test, because other work on the machine can cause them. */
const P99_FLOOR_MS = 200;

/** A gateway in its own process, so that the work of the clients does not delay it. */
async function limitedGateway(core: string) {
  const gateway = await startService('test/security/limited-gateway.ts', {
    PORT: '0',
    ADMIN_PORT: '0',
    ADMIN_TOKEN,
    CORE_URL: core,
    DATA_DIR: await temporaryFolder(),
    LIMITS: JSON.stringify(LIMITS),
  });
  const { gateway: url = '', admin = '' } = gateway.addresses;
  const keyed = { name: 'test', ...UNLIMITED };
  const issued = Array.from({ length: 21 }, () => post(`${admin}/keys`, keyed, { key: ADMIN_TOKEN }));
  const [key = '', ...slowKeys] = (await Promise.all(issued)).map(({ json }) => (json as { key: string }).key);
  const lines = parsedLines(gateway.out);
  return {
    url,
    /** The key of the healthy client. */
    key,
    /** Keys that slow clients share. Fairness between keys is tested elsewhere. */
    slowKeys,
    /** The log lines of requests by slow clients. */
    slow: () => lines().filter(({ path }) => path === '/v1/pets'),
  };
}

type Limited = Awaited<ReturnType<typeof limitedGateway>>;

async function connect(url: string, first: string): Promise<Socket> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => {});
  cleanUp(() => socket.destroy());
  await once(socket, 'connect');
  socket.write(first);
  return socket;
}

/** Writes on a connection now and then until it is closed. @returns the milliseconds until then */
async function untilCut(url: string, first: string, write: (socket: Socket) => void): Promise<number> {
  const socket = await connect(url, first);
  const startedAt = performance.now();
  socket.resume();
  const trickle = setInterval(() => socket.writable && write(socket), 500);
  await once(socket, 'close');
  clearInterval(trickle);
  return performance.now() - startedAt;
}

/**
 * The 99th percentile of a healthy client's response times in milliseconds, in the best of four periods. Slow clients
 * affect all periods; other load on the machine affects only some.
 */
async function healthyP99(to: Limited): Promise<number> {
  const moments: number[] = [];
  for (let at = 0; at < 4; at++) moments.push(await p99Within(to, 300));
  return Math.min(...moments);
}

/** Sends eight requests at a time for `forMs` milliseconds. */
async function p99Within({ url, key }: Limited, forMs: number): Promise<number> {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
  const waits: number[] = [];
  const end = performance.now() + forMs;
  const client = async () => {
    while (performance.now() < end) {
      const startedAt = performance.now();
      expect((await send(`${url}/v1/store/orders`, { key, agent })).status).toBe(200);
      waits.push(performance.now() - startedAt);
    }
  };
  await Promise.all(Array.from({ length: 8 }, client));
  agent.destroy();
  return quantile(waits, 0.99);
}

const GET = 'GET /v1/pets HTTP/1.1\r\nHost: a\r\n';
const ORDERS = 'GET /v1/store/orders HTTP/1.1\r\nHost: a\r\n';
const POST = 'POST /v1/pets HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n';
const bearer = (key: string): string => `Authorization: Bearer ${key}\r\n\r\n`;
const oneByte = (socket: Socket): void => void socket.write('x');
const nothing = (): void => {};
const kinds: [name: string, first: (key: string) => string, write: (socket: Socket) => void][] = [
  ['send a header byte by byte', () => `${GET}X: `, oneByte],
  ['send a body byte by byte', (key) => POST + bearer(key), oneByte],
  ['send nothing', () => '', nothing],
  ['send nothing after a request', (key) => ORDERS + bearer(key), nothing],
];

const answering = (answer: string) => (socket: Socket, head: string) =>
  void socket.write(head.includes('/pets') ? answer : OK);
const answerOf = (size: number): string => `HTTP/1.1 200 OK\r\ncontent-length: ${size}\r\n\r\n${'x'.repeat(size)}`;

const gateway = await limitedGateway(await faultyCore(answering(answerOf(100_000))));
await healthyP99(gateway);
const baseline = await healthyP99(gateway);
const slowKey = (client: number): string => gateway.slowKeys[client % gateway.slowKeys.length] as string;

test.for(kinds)(
  '1,000 clients that %s are disconnected in time with little effect on a healthy one',
  TIMED,
  async ([, first, write]) => {
    const cuts = Array.from({ length: CLIENTS }, (_, at) => untilCut(gateway.url, first(slowKey(at)), write));
    const p99 = await healthyP99(gateway);
    const lasted = await Promise.all(cuts);
    expect(Math.min(...lasted)).toBeGreaterThan(LIMIT_MS - EARLY_MS);
    expect(Math.max(...lasted)).toBeLessThan(LIMIT_MS + LATE_MS + NOISE_MS);
    expect(p99).toBeLessThan(Math.max(2 * baseline, P99_FLOOR_MS));
  },
);

test('1,000 clients that never read are disconnected in time with little effect on a healthy one', TIMED, async () => {
  const crowd = Array.from({ length: CLIENTS }, (_, at) => connect(gateway.url, GET + bearer(slowKey(at))));
  const sockets = await Promise.all(crowd);
  for (const socket of sockets) socket.pause();
  const p99 = await healthyP99(gateway);
  await sleep(LIMIT_MS + LATE_MS + NOISE_MS - 1_200);
  // The clients can still read the bytes that were sent, followed by the end, which has already arrived.
  const resumedAt = performance.now();
  await Promise.all(sockets.map((socket) => once(socket.resume(), 'end')));
  expect(performance.now() - resumedAt).toBeLessThan(LIMIT_MS - EARLY_MS);
  expect(p99).toBeLessThan(Math.max(2 * baseline, P99_FLOOR_MS));
});

test(
  'an answer is abandoned if its client does not read it, or reads only a few bytes now and then',
  TIMED,
  async () => {
    // This answer is larger than the kernel buffers of two connections.
    const other = await limitedGateway(await faultyCore(answering(answerOf(8_000_000))));
    const sockets = await Promise.all(Array.from({ length: 4 }, () => connect(other.url, GET + bearer(other.key))));
    for (const socket of sockets) socket.pause();
    const sip = setInterval(() => void sockets.slice(0, 2).map((socket) => socket.read(1_024)), 100);
    cleanUp(() => clearInterval(sip));
    await expect.poll(() => other.slow().length).toBe(4);
    for (const { status, durationMs } of other.slow()) {
      expect(status).toBe(499);
      expect(durationMs).toBeGreaterThan(LIMIT_MS - EARLY_MS);
      expect(durationMs).toBeLessThan(LIMIT_MS + LATE_MS + NOISE_MS);
    }
  },
);
