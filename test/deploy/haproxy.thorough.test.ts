import { readFileSync } from 'node:fs';
import net from 'node:net';
import { expect, test } from 'vitest';
import { ERRORS, type ErrorCode } from '../../shared/http/errors.ts';
import { judge } from '../support/allowance-checker.ts';
import { cleanUp } from '../support/clean-up.ts';
import { knowServices } from '../support/described-answers.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { CONFIGURATION, type Haproxy, startHaproxy } from '../support/haproxy.ts';
import { post, send } from '../support/http.ts';
import { hammer, readAndWrite } from '../support/load.ts';
import type { LogLine } from '../support/log.ts';
import { freePort } from '../support/port.ts';
import { type Started, startProcess, startService } from '../support/process.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';
import { BOUNDLESS, eventually } from '../support/workers.ts';

/** Two gateway processes with one Redis, behind a real haproxy with the shipped configuration. */

const CLIENT = '127.0.0.9';
const CONNECTIONS_PER_ADDRESS = 1_000;
const HAMMERED_MS = 1_500;
/** A separate network with three IPv6 addresses. Requires root or unprivileged user namespaces. */
const NAMESPACE = process.getuid?.() === 0 ? ['--net'] : ['--map-root-user', '--net'];
const ADDRESSES = ['fd00:0:0:1::1', 'fd00:0:0:1::2', 'fd00:0:0:2::1'];
const IPV6_ON_LOOPBACK = `ip link set lo up && ${ADDRESSES.map((one) => `ip addr add ${one}/128 dev lo`).join(' && ')} && exec "$0" "$@"`;

interface Gateway extends Started {
  readonly port: string;
  readonly adminPort: string;
  stop(): Promise<number | null>;
  start(): Promise<void>;
}

async function startGatewayProcess(common: NodeJS.ProcessEnv): Promise<Gateway> {
  const [port, adminPort] = [String(await freePort()), String(await freePort())];
  const start = () => startService('gateway/main.ts', { ...common, PORT: port, ADMIN_PORT: adminPort });
  const gateway = {
    ...(await start()),
    port,
    adminPort,
    async stop() {
      gateway.child.kill('SIGTERM');
      return (await gateway.ended).code;
    },
    start: async () => void Object.assign(gateway, await start()),
  };
  return gateway;
}

async function startTopology() {
  const DATA_DIR = await temporaryFolder();
  const core = await startService('core/main.ts', { PORT: '0', DATABASE_URL: `sqlite:${DATA_DIR}/store.db` });
  const common = {
    ADMIN_TOKEN,
    DATA_DIR,
    CORE_URL: core.addresses.core,
    REDIS_URL: (await emptyDatabase()).url,
    REDIS_TIMEOUT_MS: '10000',
    TRUSTED_PROXIES: '127.0.0.1',
  };
  const [first, second] = [await startGatewayProcess(common), await startGatewayProcess(common)];
  const haproxy = await startHaproxy({
    GATEWAY_1: `127.0.0.1:${first.port}`,
    ADMIN_PORT_1: first.adminPort,
    GATEWAY_2: `127.0.0.1:${second.port}`,
    ADMIN_PORT_2: second.adminPort,
  });
  // Responses through haproxy are checked against the API's description too.
  cleanUp(knowServices({ gateway: haproxy.url }, core.addresses.core));
  const issueKey = async (limits: Record<string, unknown> = BOUNDLESS) => {
    const url = `http://127.0.0.1:${second.adminPort}/keys`;
    return ((await post(url, { name: 'test', ...limits }, { key: ADMIN_TOKEN })).json as { key: string }).key;
  };
  return { first, second, haproxy, issueKey };
}

/** The requests logged by a gateway so far. */
const requestsOf = ({ out }: Started): LogLine[] =>
  out()
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as LogLine)
    .filter(({ msg }) => msg === 'request');

/** Returns a function that waits until haproxy prints this string again. */
function nextTime({ out }: Haproxy, what: string): () => Promise<void> {
  const times = () => out().split(what).length - 1;
  const before = times();
  return () => eventually(times).toBeGreaterThan(before);
}

const { first, second, haproxy, issueKey } = await startTopology();

test("haproxy's own errors have the API's codes and statuses", () => {
  const own = [...readFileSync(CONFIGURATION, 'utf8').matchAll(/^ *http-error status (\d+) .* string '([^']*)'/gm)];
  expect(own.map(([, status]) => status)).toEqual(['400', '408', '502', '503', '504']);
  for (const [, status, body = ''] of own) {
    const { code, ...rest } = JSON.parse(body) as { code: ErrorCode; status: number };
    expect(rest).toEqual({ message: expect.any(String), status: Number(status) });
    expect(ERRORS[code].status).toBe(Number(status));
  }
});

test('haproxy is healthy while a gateway is ready', async () => {
  await eventually(async () => (await send(haproxy.health)).status).toBe(200);
});

test('addresses of one IPv6 /64 count as one client, and those of another /64 do not', async () => {
  const { out, code, err } = await startProcess(
    'unshare',
    [...NAMESPACE, 'sh', '-c', IPV6_ON_LOOPBACK, process.execPath, 'test/support/many-addresses.ts', ...ADDRESSES],
    {},
  ).ended;
  expect({ code, err }).toEqual({ code: 0, err: '' });
  expect(JSON.parse(out)).toEqual({ 'one /64': CONNECTIONS_PER_ADDRESS, 'another /64': 10 });
});

test('limits are exact across both gateways', async () => {
  // Small enough that even the slowest machine exceeds it.
  const capacity = 10;
  const limits = { plan: 'enterprise', minute: capacity, day: 1_000_000 };
  const keys = await Promise.all(Array.from({ length: 6 }, () => issueKey(limits)));
  const before = [first, second].map((gateway) => requestsOf(gateway).length);
  const observed = await hammer(haproxy.url, keys, 12, HAMMERED_MS);
  const { violations, usedShare } = judge(observed, { capacity, windowMs: 60_000 });
  expect(violations).toEqual([]);
  expect(usedShare).toBeGreaterThanOrEqual(0.999);
  const shares = [first, second].map((gateway, index) => requestsOf(gateway).length - (before[index] ?? 0));
  for (const share of shares) expect(share).toBeGreaterThan(observed.length / 10);
});

const SAID_OF_ITSELF = {
  'x-forwarded-for': '203.0.113.9',
  'x-forwarded-host': 'evil.test',
  'x-forwarded-proto': 'https',
  'x-forwarded-port': '1',
  forwarded: 'for=203.0.113.9',
};

test('a client is identified by its real address, whatever its headers claim', async () => {
  const headers = { ...SAID_OF_ITSELF, 'x-request-id': 'whose-address' };
  expect((await send(`${haproxy.url}/v1/pets`, { from: CLIENT, headers })).status).toBe(401);
  const lines = () => [first, second].flatMap(requestsOf).filter(({ requestId }) => requestId === 'whose-address');
  await eventually(() => lines().map(({ address }) => address)).toEqual([CLIENT]);
});

test('a gateway receives only the forwarding headers that haproxy sets', async () => {
  const recorder = await listeningCore();
  const { host, port } = new URL(recorder.url);
  const place = { GATEWAY_1: host, GATEWAY_2: host, ADMIN_PORT_1: port, ADMIN_PORT_2: port };
  const another = await startHaproxy(place);
  await send(`${another.url}/v1/pets`, { from: CLIENT, headers: SAID_OF_ITSELF });
  const head = recorder.heads.find((received) => received.startsWith('GET /v1/pets')) ?? '';
  expect(head.match(/^(x-forwarded|forwarded).*$/gim)?.sort()).toEqual([
    `x-forwarded-for: ${CLIENT}`,
    'x-forwarded-proto: http',
  ]);
});

test(`one address has at most ${CONNECTIONS_PER_ADDRESS} connections, and another address is still accepted`, async () => {
  const { hostname, port } = new URL(haproxy.url);
  let refused = 0;
  const sockets = Array.from({ length: CONNECTIONS_PER_ADDRESS + 5 }, () => {
    const socket = net.connect({ host: hostname, port: Number(port), localAddress: '127.0.0.8' });
    socket.on('error', () => {});
    return socket.once('close', () => {
      refused += 1;
    });
  });
  cleanUp(() => sockets.forEach((socket) => void socket.destroy()));
  await eventually(() => refused).toBe(5);
  expect((await send(`${haproxy.url}/v1/pets`, { from: CLIENT })).status).toBe(401);
});

test("request headers that are too long get the API's error from the gateway", async () => {
  const { status, json } = await send(`${haproxy.url}/v1/pets`, { headers: { 'x-long': 'x'.repeat(16_384) } });
  expect({ status, json }).toMatchObject({ status: 431, json: { code: 'headers_too_large' } });
});

test('a gateway that stops under load loses no request, and serves again after its restart', async () => {
  const load = readAndWrite(haproxy.url, await issueKey(), 4, 20);
  const served = (gateway: Gateway) => requestsOf(gateway).length;
  for (let round = 1; round <= 2; round++) {
    await eventually(() => served(first)).toBeGreaterThan(50);
    const isTakenOut = nextTime(haproxy, 'Server gateways/gateway-1 is DOWN');
    expect(await first.stop()).toBe(0);
    await isTakenOut();
    const sinceThen = served(second);
    await eventually(() => served(second)).toBeGreaterThan(sinceThen + 50);
    const isBack = nextTime(haproxy, 'Server gateways/gateway-1 is UP');
    await first.start();
    await isBack();
  }
  await eventually(() => served(first)).toBeGreaterThan(50);
  await load.end();
  expect([...load.outcomes.keys()].sort()).toEqual(['GET 200', 'POST 201']);
}, 60_000);

test("with no gateway left, clients get an error in the API's format", async () => {
  // The first gateway was stopped at the end of the test that restarted it.
  const isEmpty = nextTime(haproxy, 'backend gateways has no server available');
  expect(await second.stop()).toBe(0);
  await isEmpty();
  await eventually(async () => (await send(haproxy.health)).status).toBe(503);
  const answer = await fetch(`${haproxy.url}/v1/pets`);
  expect([answer.status, answer.headers.get('content-type'), answer.headers.get('retry-after')]).toEqual([
    503,
    'application/json',
    '1',
  ]);
  expect(await answer.json()).toEqual({ code: 'unavailable', message: expect.any(String), status: 503 });
});
