import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { idOf } from '../support/api-key.ts';
import { createAuthority } from '../support/certificates.ts';
import { send, sendBytes } from '../support/http.ts';
import { eventuallyScraped, type Scrape, scrape } from '../support/metrics.ts';
import { connectRaw } from '../support/raw-client.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, UNLIMITED } from '../support/stack.ts';
import { echo, HANDSHAKE, headOf, open, opened, PATH, SLOW, startLive } from './web-socket.ts';
import { type OnUpgrade, switching, webSocketCore } from './web-socket-core.ts';

const { url: redisUrl } = await emptyDatabase();
const core = await webSocketCore();
const stack = await startLive({ CORE_URL: core.url, CORE_TOKEN: 'token-for-the-core' });

beforeEach(() => {
  for (const list of [core.handshakes, core.requests, core.closeCodes, stack.log]) list.length = 0;
});

const answering =
  (head: string, body: string, type = 'application/json'): OnUpgrade =>
  (socket) =>
    socket.end(`${head}\r\nContent-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);

/** Sends a 101 with one text replaced. */
const changed =
  (from: string, to: string): OnUpgrade =>
  (socket, request) =>
    socket.write(switching(request).replace(from, to));

const EMPTY_403 = 'HTTP/1.1 403 Forbidden\r\n\r\n';

/** A close frame with the code 4000, masked with zeros. */
const CLOSE_4000 = '\x88\x82\0\0\0\0\x0f\xa0';

test('a WebSocket costs one token, and its 101 answer has the limit headers', async () => {
  const key = await stack.issueKey(SLOW);
  const tunnel = await opened(stack, key, PATH, { headers: { 'X-Request-Id': 'mine' } });
  expect(tunnel.headers).toMatchObject({
    'x-ratelimit-limit': '3',
    'x-ratelimit-remaining': '2',
    ratelimit: expect.any(String),
    'x-request-id': 'mine',
  });
  expect(core.handshakes[0]?.headers['x-request-id']).toMatch(/^mine\.[0-9a-z]+$/);
  expect((await echo(tunnel, 'hello')).toString()).toBe('hello');
  const large = Buffer.alloc(3_000_000, 'x');
  expect((await echo(tunnel, large)).equals(large)).toBe(true);
  const next = await send(`${stack.gateway}/v1/pets`, { key });
  expect(next.headers['x-ratelimit-remaining']).toBe('1');

  tunnel.webSocket.close(4_000);
  expect(await tunnel.closed).toBe(4_000);
  await expect.poll(() => core.closeCodes).toEqual([4_000]);
  const line = () => stack.log.find(({ requestId }) => requestId === 'mine');
  await expect.poll(line).toMatchObject({ status: 101, operation: 'watchPets', keyId: idOf(key), path: PATH });
  expect(line()?.bytesFromClient).toBeGreaterThan(3_000_000);
  expect(line()?.bytesFromCore).toBeGreaterThan(3_000_000);
  expect(line()?.durationMs).toBeGreaterThan(0);
});

test('the core receives a handshake with its checked target, without the key and without forged headers', async () => {
  const key = await stack.issueKey();
  const claims = {
    'X-Caller-Id': 'claim',
    x_caller_id: 'claim',
    'X-Forwarded-For': 'claim',
    'X-Forwarded-Proto': 'claim',
    Forwarded: 'for=claim',
    Cookie: 'claim',
    Expect: '100-continue',
    'X-Secret': 'claim',
    Connection: 'Upgrade, X-Secret',
    'Keep-Alive': 'claim',
    'X-Fine': 'kept',
    'Sec-WebSocket-Protocol': 'v1.pets',
  };
  const answer = await sendBytes(stack.gateway, headOf(key, claims, `${PATH}?a=%27'b&c=%2B//`), 500);
  expect(answer).toMatch(/^HTTP\/1\.1 101 /);
  const [{ headers = {}, url, rawHeaders = [] } = {}] = core.handshakes;
  expect(url).toBe(`${PATH}?a=%27'b&c=%2B//`);
  expect(headers).toMatchObject({
    authorization: 'Bearer token-for-the-core',
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-protocol': 'v1.pets',
    'x-caller-id': idOf(key),
    'x-forwarded-for': '127.0.0.1',
    'x-forwarded-proto': 'http',
    'x-fine': 'kept',
    host: new URL(core.url).host,
  });
  expect(rawHeaders.join()).not.toMatch(/claim|expect/i);
  expect(rawHeaders.join()).not.toContain(key);
});

test('a handshake without a valid key or without tokens left is refused and does not reach the core', async () => {
  expect(await open(stack)).toBe(401);
  expect(await open(stack, 'as_000000000000_00000000000000000000000000000000000000')).toBe(401);
  const key = await stack.issueKey({ plan: 'enterprise', minute: 2, day: 100 });
  await opened(stack, key);
  await opened(stack, key);
  const refused = await sendBytes(stack.gateway, headOf(key));
  expect(refused).toMatch(/^HTTP\/1\.1 429 /);
  expect(refused).toMatch(/\r\nX-RateLimit-Remaining: 0\r\n.*\r\nRetry-After: \d+\r\n.*"code":"rate_limit_exceeded"/s);
  expect(refused).toMatch(/\r\nConnection: close\r\n/);
  expect(core.handshakes).toHaveLength(2);
  // A WebSocket is logged with 101 when it is closed.
  const refusals = () => stack.log.flatMap(({ path, status }) => (path === PATH && status !== 101 ? [status] : []));
  await expect.poll(refusals).toEqual([401, 401, 429]);
});

test('an upgrade to another protocol or on another path is ignored', async () => {
  const key = await stack.issueKey();
  for (const [target, upgrade] of [
    ['/v1/pets', 'websocket'],
    [PATH, 'h2c'],
    [PATH, 'websocket, h2c'],
    [PATH, 'TLS/1.2'],
  ]) {
    const headers = { ...HANDSHAKE, Upgrade: upgrade as string };
    expect((await send(stack.gateway + target, { key, headers })).status).toBe(200);
  }
  const inOlderVersion = headOf(key).replace('HTTP/1.1', 'HTTP/1.0');
  expect(await sendBytes(stack.gateway, inOlderVersion)).toMatch(/^HTTP\/1\.1 200 /);
  expect(core.requests.map(({ headers }) => headers.upgrade)).toEqual(Array(5).fill(undefined));
  expect((await send(stack.gateway + PATH, { method: 'POST', key, headers: HANDSHAKE })).status).toBe(405);
  expect(core.handshakes).toHaveLength(0);
});

test('an upgrade that follows other requests begins after their answers, and bytes that were already sent are kept', async () => {
  const key = await stack.issueKey();
  const first = `GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n\r\n`;
  const { socket, received } = await connectRaw(stack.gateway);
  socket.write(`${first.repeat(2)}${headOf(key)}${CLOSE_4000}`, 'latin1');
  await expect.poll(() => core.closeCodes).toContain(4_000);
  expect(received().match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 101']);
});

test.for([
  ['of another version', { 'Sec-WebSocket-Version': '8' }],
  ['with an invalid Sec-WebSocket-Key', { 'Sec-WebSocket-Key': 'short' }],
  [
    'with two keys in Sec-WebSocket-Key',
    { 'Sec-WebSocket-Key': `${HANDSHAKE['Sec-WebSocket-Key']}, ${HANDSHAKE['Sec-WebSocket-Key']}` },
  ],
  ['whose Connection header names Sec-WebSocket-Key', { Connection: 'Upgrade, Sec-WebSocket-Key' }],
  ['with a body', { 'Content-Length': '5' }],
  ['with a body in chunks', { 'Transfer-Encoding': 'chunked' }],
] as const)('a handshake %s gets 400 and does not reach the core', async ([, headers]) => {
  const answer = await sendBytes(
    stack.gateway,
    `${headOf(await stack.issueKey(), headers)}GET /v1/pets HTTP/1.1\r\n\r\n`,
  );
  expect(answer).toMatch(/^HTTP\/1\.1 400 .*"code":"invalid_request"/s);
  expect(answer.match(/HTTP\/1\.1/g)).toHaveLength(1);
  expect(core.handshakes.length + core.requests.length).toBe(0);
});

test.for([
  ['is unreachable', undefined, 502, 'bad_gateway', 'unreachable'],
  ['never answers', () => {}, 504, 'gateway_timeout', 'timeout'],
  ['hangs up', (socket) => socket.destroy(), 502, 'bad_gateway', 'broken'],
  ['answers 200', answering('HTTP/1.1 200 OK', '[]'), 502, 'bad_gateway', 'broken'],
  ['answers 404 without JSON', answering('HTTP/1.1 404 Not Found', 'no', 'text/html'), 502, 'bad_gateway', 'broken'],
  ['does not serve the path', (socket) => socket.end('HTTP/1.1 404 Not Found\r\n\r\n'), 404, 'not_found', undefined],
  ['fails without a body', (socket) => socket.end('HTTP/1.1 500 Oops\r\n\r\n'), 502, 'bad_gateway', 'broken'],
  ['rejects the token without a body', (socket) => socket.end(EMPTY_403), 502, 'bad_gateway', 'token'],
  ['rejects the token of the gateway', answering('HTTP/1.1 403 Forbidden', '{}'), 502, 'bad_gateway', 'token'],
  ['answers in HTTP/1.0', changed('/1.1', '/1.0'), 502, 'bad_gateway', 'broken'],
  ['answers 101 without Upgrade', changed('Connection: Upgrade', 'X: y'), 502, 'bad_gateway', 'broken'],
  ['upgrades to another protocol', changed('websocket', 'h2c'), 502, 'bad_gateway', 'broken'],
  ['sends no Sec-WebSocket-Accept', changed('Sec-WebSocket-Accept', 'X'), 502, 'bad_gateway', 'broken'],
  ['sends a wrong Sec-WebSocket-Accept', changed('Accept: ', 'Accept: x'), 502, 'bad_gateway', 'broken'],
] as [string, OnUpgrade | undefined, number, string, string | undefined][])(
  'a WebSocket handshake gets an error in the Error shape from a core that %s, and a fault of the core is counted',
  async ([, onUpgrade, status, code, kind]) => {
    const url = onUpgrade === undefined ? 'http://127.0.0.1:1' : (await webSocketCore(onUpgrade)).url;
    const own = await startLive({ CORE_URL: url, CORE_TIMEOUT_MS: '300' });
    const answer = await sendBytes(own.gateway, headOf(await own.issueKey()));
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} .*X-RateLimit-Remaining: 59.*"code":"${code}"`, 's'));
    expect(own.log.filter(({ level }) => level >= 50)).toEqual([]);
    const errors = (metrics: Scrape) =>
      metrics.sum('gateway_upstream_errors_total', kind === undefined ? {} : { kind });
    if (kind === undefined) await eventuallyScraped(own.adminUrl, errors).toBe(0);
    else await eventuallyScraped(own.adminUrl, errors).toBeGreaterThan(0);
  },
);

test.for([
  ['400 Bad Request', 'invalid_parameter', 'No such room.', ''],
  ['404 Not Found', 'not_found', 'No such room.', ''],
  ['429 Too Many Requests', 'rate_limit_exceeded', 'Too many rooms.', '\r\nRetry-After: 7'],
  ['503 Service Unavailable', 'unavailable', 'Later.', '\r\nRetry-After: 7'],
] as const)('the %s with which a core refuses a handshake is forwarded', async ([status, code, message, wait]) => {
  const body = JSON.stringify({ code, message, status: Number(status.slice(0, 3)) });
  const { url } = await webSocketCore(answering(`HTTP/1.1 ${status}${wait}`, body));
  const own = await startLive({ CORE_URL: url });
  const answer = await sendBytes(own.gateway, headOf(await own.issueKey()));
  const [head = '', ...rest] = answer.split('\r\n\r\n');
  expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${status}\r\n`));
  expect(head).toContain(wait);
  for (const line of ['X-RateLimit-Remaining: 59', 'Connection: close', `Link: </docs#error-${code}>`])
    expect(head).toContain(line);
  expect(rest).toEqual([body]);
  await expect
    .poll(() => own.log.find(({ msg }) => msg === 'request'))
    .toMatchObject({ status: Number(status.slice(0, 3)) });
});

test('the Content-Length of a 101 is not forwarded', async () => {
  const { url } = await webSocketCore((socket, request) => socket.write(switching(request, { 'Content-Length': '5' })));
  const own = await startLive({ CORE_URL: url });
  const answer = await sendBytes(own.gateway, headOf(await own.issueKey()), 300);
  expect(answer).toMatch(/^HTTP\/1\.1 101 /);
  expect(answer).not.toMatch(/content-length/i);
});

const openMany = (to: Stack, key: string, count: number) =>
  Promise.all(Array.from({ length: count }, async () => typeof (await open(to, key))));

test.for([
  ['cuts connections', (socket) => socket.destroy()],
  ['hangs', () => {}],
  ['sends a page', answering('HTTP/1.1 503 Service Unavailable', 'no', 'text/html')],
  ['sends a wrong 101', changed('Accept: ', 'Accept: x')],
  ['sends a 101 without Upgrade', changed('Connection: Upgrade', 'X: y')],
] as [string, OnUpgrade][])('if one core %s, handshakes go to the other one', async ([, onUpgrade]) => {
  const bad = await webSocketCore(onUpgrade);
  const own = await startLive({ CORE_URL: `${bad.url},${core.url}`, CORE_TIMEOUT_MS: '5000' });
  const key = await own.issueKey(UNLIMITED);
  expect(await openMany(own, key, 12)).toEqual(Array(12).fill('object'));
  expect(bad.handshakes.length).toBeGreaterThan(0);
  expect(core.handshakes.length).toBe(12);
});

test('if a core refuses connections, handshakes go to another one', async () => {
  const own = await startLive({ CORE_URL: `http://127.0.0.1:1,http://127.0.0.1:2,${core.url}` });
  expect(await openMany(own, await own.issueKey(UNLIMITED), 12)).toEqual(Array(12).fill('object'));
});

test('handshakes that are not answered count as requests in progress and keep to CORE_CONCURRENCY', async () => {
  const hanging = await webSocketCore(() => {});
  const own = await startLive({ CORE_URL: hanging.url, CORE_CONCURRENCY: '2', CORE_TIMEOUT_MS: '1500' });
  const [key, other] = [await own.issueKey(UNLIMITED), await own.issueKey(UNLIMITED)];
  const gone = await connectRaw(own.gateway);
  gone.socket.write(headOf(key));
  await expect.poll(() => hanging.handshakes.length).toBe(1);
  const statuses = Promise.all([key, key, key, other, other].map((one) => open(own, one)));
  await expect.poll(() => hanging.handshakes.length).toBe(2);
  // The core may continue even if the connection is closed.
  gone.socket.resetAndDestroy();
  await sleep(300);
  expect(hanging.handshakes.length).toBe(2);
  expect((await scrape(own.adminUrl)).sum('gateway_upstream_in_flight')).toBe(6);
  expect(await statuses).toEqual(Array(5).fill(504));
  await eventuallyScraped(own.adminUrl, (metrics) => metrics.sum('gateway_upstream_in_flight')).toBe(0);
});

test('an open WebSocket takes no place of CORE_CONCURRENCY', async () => {
  const own = await startLive({ CORE_URL: core.url, CORE_CONCURRENCY: '1' });
  const key = await own.issueKey(UNLIMITED);
  expect(await openMany(own, key, 4)).toEqual(Array(4).fill('object'));
  expect((await send(`${own.gateway}/v1/pets`, { key })).status).toBe(200);
});

test('a client that disconnects during a handshake is recorded with 499', async () => {
  let count = 0;
  const late = await webSocketCore((socket, request) => {
    const isAccepted = ++count % 2 === 0;
    setTimeout(() => (isAccepted ? socket.write(switching(request)) : socket.destroy()), 4);
  });
  const own = await startLive({ CORE_URL: late.url, REDIS_URL: redisUrl, REDIS_TIMEOUT_MS: '2000' });
  const key = await own.issueKey(UNLIMITED);
  for (let wave = 0; wave < 20; wave++) {
    const clients = await Promise.all(Array.from({ length: 20 }, () => connectRaw(own.gateway)));
    // A connection that is reset before the gateway has accepted it leaves no line.
    await sleep(30);
    for (const { socket } of clients) socket.on('error', () => {}).write(headOf(key));
    await sleep(wave % 8);
    for (const { socket } of clients) socket.resetAndDestroy();
    // Resets, decisions and answers arrive in one turn of the gateway's event loop.
    for (const until = performance.now() + 10; performance.now() < until; );
  }
  const lines = () => own.log.filter(({ msg }) => msg === 'request');
  await expect.poll(() => lines().length).toBeGreaterThan(30);
  expect(lines().filter(({ status, reason }) => status !== 499 && /client/.test(String(reason)))).toEqual([]);
  expect(lines().filter(({ status }) => status === 499).length).toBeGreaterThan(10);
});

test('a WebSocket works over TLS, and the core receives X-Forwarded-Proto: https', async () => {
  const { certFile, keyFile, caFile } = await createAuthority();
  const secure = await startLive({ CORE_URL: core.url, TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });
  const tunnel = await opened(secure, await secure.issueKey(), PATH, { ca: await readFile(caFile) });
  expect((await echo(tunnel, 'hello')).toString()).toBe('hello');
  expect(core.handshakes[0]?.headers['x-forwarded-proto']).toBe('https');
  const [code] = await Promise.all([tunnel.closed, secure.stop()]);
  expect(code).toBe(1_001);
});

test.for(bothStacks(redisUrl))(
  'with %s, a WebSocket is closed when the secret that opened it expires',
  async ([, environment]) => {
    const stack = await startLive({ ...environment, CORE_URL: core.url });
    const leaked = await stack.issueKey();
    const tunnel = await opened(stack, leaked);
    const rotatedAt = performance.now();
    const rotated = await stack.admin('POST', `/keys/${idOf(leaked)}/rotate`, { graceSeconds: 2 });
    const fresh = await opened(stack, (rotated.json as { key: string }).key);
    expect(await tunnel.closed).toBe(1_008);
    expect(performance.now() - rotatedAt).toBeGreaterThan(1_500);
    expect(fresh.webSocket.readyState).toBe(WebSocket.OPEN);
    await stack.admin('POST', `/keys/${idOf(leaked)}/rotate`, { graceSeconds: 0 });
    const before = performance.now();
    expect(await fresh.closed).toBe(1_008);
    expect(performance.now() - before).toBeLessThan(1_500);
  },
);
