import { readFile } from 'node:fs/promises';
import { beforeEach, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { idOf } from '../support/api-key.ts';
import { createAuthority } from '../support/certificates.ts';
import { send, sendBytes } from '../support/http.ts';
import { connectRaw } from '../support/raw-client.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks } from '../support/stack.ts';
import { echo, HANDSHAKE, headOf, open, opened, PATH, SLOW, startLive } from './web-socket.ts';
import { webSocketCore } from './web-socket-core.ts';

const { url: redisUrl } = await emptyDatabase();
const core = await webSocketCore();
const stack = await startLive({ CORE_URL: core.url, CORE_TOKEN: 'token-for-the-core' });

beforeEach(() => {
  for (const list of [core.handshakes, core.requests, core.closeCodes, stack.log]) list.length = 0;
});

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
  ['is unreachable', undefined, {}, 502, 'bad_gateway'],
  ['never answers', () => {}, { CORE_TIMEOUT_MS: '300' }, 504, 'gateway_timeout'],
  ['hangs up', (socket) => socket.destroy(), {}, 502, 'bad_gateway'],
  ['does not serve the path', (socket) => socket.end('HTTP/1.1 404 Not Found\r\n\r\n'), {}, 404, 'not_found'],
  [
    'rejects the token of the gateway',
    (socket) => socket.end('HTTP/1.1 403 Forbidden\r\n\r\n'),
    {},
    502,
    'bad_gateway',
  ],
] as [string, ((socket: import('node:stream').Duplex) => void) | undefined, Record<string, string>, number, string][])(
  'a WebSocket handshake gets an error in the Error shape from a core that %s',
  async ([, onUpgrade, environment, status, code]) => {
    const url = onUpgrade === undefined ? 'http://127.0.0.1:1' : (await webSocketCore(onUpgrade)).url;
    const own = await startLive({ CORE_URL: url, ...environment });
    const answer = await sendBytes(own.gateway, headOf(await own.issueKey()));
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} .*X-RateLimit-Remaining: 59.*"code":"${code}"`, 's'));
    expect(own.log.filter(({ level }) => level >= 50)).toEqual([]);
  },
);

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
