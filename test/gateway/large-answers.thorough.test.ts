import { createHash } from 'node:crypto';
import { once } from 'node:events';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import type net from 'node:net';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { describe, expect, test } from 'vitest';
import { createAuthority, trusted } from '../support/certificates.ts';
import { cleanUp } from '../support/clean-up.ts';
import { withIdOf } from '../support/faulty-core.ts';
import { post } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { eventuallyScraped, scrape } from '../support/metrics.ts';
import { connectRaw } from '../support/raw-client.ts';
import { answerBySeed, bytesOf } from '../support/seeded-core.ts';
import { type Stack, startStack, UNLIMITED } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';

/**
 * Large responses are streamed to their clients. Clients that do not read, or that disconnect, do not affect others.
 */

const MEGABYTE = 1_000_000;
/** The maximum for one client: half of the unshared connections to a core. */
const MOST_ALONE = 32;
let asked = 0;

const untilNothingIsHeld = ({ adminUrl }: Stack) =>
  eventuallyScraped(adminUrl, (metrics) => metrics.sum('gateway_upstream_in_flight')).toBe(0);

const hashOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

const CORE_URL = await serveHttp((request, response) => {
  if (request.url?.includes('seed=')) asked += 1;
  answerBySeed(request, response);
});

/**
 * Starts the same core over TLS, with a certificate that this process trusts. It has a thread of its own: only then can
 * several TLS records arrive together.
 * @returns its URL
 */
async function serveTls(): Promise<string> {
  const workerData = trusted(await createAuthority());
  const core = new Worker(new URL('../support/seeded-core.ts', import.meta.url), { workerData });
  cleanUp(() => core.terminate());
  const [url] = await once(core, 'message');
  return url;
}

describe('each client gets every byte of its own large response in order', () => {
  /** Larger than the buffers of the kernel, so the gateway waits for slow readers. Encryption takes time. */
  const lengthOf = (isTls: boolean) => (isTls ? 6 : 16) * MEGABYTE;

  async function readSlowly(answer: IncomingMessage, pauseMs: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for await (const piece of answer) {
      pieces.push(piece as Buffer);
      if (pauseMs > 0 && pieces.length % 16 === 0) await sleep(pauseMs);
    }
    return Buffer.concat(pieces);
  }

  test.for([
    ['with a length', '', false],
    ['in chunks', '&chunked', false],
    ['with a length, over TLS', '', true],
    ['in chunks, over TLS', '&chunked', true],
  ] as const)('%s', async ([, framing, isTls]) => {
    const length = lengthOf(isTls);
    // The core runs in this process, so a slow machine must not cause a timeout.
    const { stack, key } = await stackBefore(isTls ? await serveTls() : CORE_URL, { CORE_TIMEOUT_MS: '120000' });
    const begin = async (seed: number): Promise<IncomingMessage> => {
      const url = `${stack.gateway}/v1/pets?seed=${seed}&length=${length}${framing}`;
      const method = seed % 2 === 0 ? 'GET' : 'POST';
      const request = http.request(url, { method, headers: { authorization: `Bearer ${key}` }, agent: false }).end();
      const [answer] = await once(request, 'response');
      return answer;
    };
    const read = async (answer: IncomingMessage, seed: number) => {
      await sleep(50 * seed);
      return { status: answer.statusCode, hash: hashOf(await readSlowly(answer, seed % 3)) };
    };
    const seeds = [1, 2, 3, 4];
    const expected = seeds.map((seed) => ({ status: 200, hash: hashOf(bytesOf(seed, length)) }));
    // One after the other, because a core that encrypts a large response takes long to accept a connection.
    const answers: IncomingMessage[] = [];
    for (const seed of seeds) answers.push(await begin(seed));
    expect(await Promise.all(answers.map((answer, at) => read(answer, at + 1)))).toEqual(expected);
  });
});

test('a client that reads none of its responses holds only its share of connections; others are served', async () => {
  const { stack, key: greedy, get } = await stackBefore(CORE_URL);
  const other = await stack.issueKey(UNLIMITED);
  const query = `?seed=7&length=${2 * MEGABYTE}`;
  // After this response, the gateway expects large responses for this client.
  expect((await get(query)).status).toBe(200);
  const ask = `GET /v1/pets${query} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${greedy}\r\n\r\n`;
  asked = 0;
  const openMore = async () => {
    for (let opened = 0; opened < 10; opened++) (await connectRaw(stack.gateway)).socket.pause().write(ask.repeat(50));
  };
  const statuses = new Set<number>();
  // Continues until the first requests that wait for a connection to the core time out after 5 s.
  const end = performance.now() + 6_500;
  for (let round = 0; performance.now() < end; round++) {
    if (round % 10 === 0) await openMore();
    statuses.add((await get('', { key: other })).status);
    await sleep(50);
  }
  expect([...statuses]).toEqual([200]);
  // Few of the thousands of requests reach the core. On a slow machine, some of them time out and others replace them.
  expect(asked).toBeLessThanOrEqual(10 * MOST_ALONE);
});

test("clients that do not read large responses leave connections to the core for others' GETs and POSTs", async () => {
  const { stack, get } = await stackBefore(CORE_URL);
  const queryOf = (megabytes: number) => `?seed=7&length=${megabytes * MEGABYTE}`;
  for (let count = 0; count < 4; count++) {
    const key = await stack.issueKey(UNLIMITED);
    const ask = `GET /v1/pets${queryOf(16)} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n\r\n`;
    expect((await get(queryOf(2), { key })).status).toBe(200);
    for (let opened = 0; opened < 40; opened++) (await connectRaw(stack.gateway)).socket.pause().write(ask);
  }
  await sleep(500);
  const other = await stack.issueKey(UNLIMITED);
  expect((await get(queryOf(16), { key: other })).status).toBe(200);
  const body = { name: 'Rex', categoryId: 1 };
  expect((await post(`${stack.gateway}/v1/pets`, body, { key: other })).status).toBe(200);
});

describe('a large response that its core does not complete', () => {
  const HEAD = 'HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n';
  const CHUNKS = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n186A0\r\n${'x'.repeat(100_000)}\r\n`;

  const close = (socket: net.Socket): void => void socket.end();
  const reset = (socket: net.Socket): void => void sleep(100).then(() => socket.resetAndDestroy());

  /** Returns what a client receives if the core sends `text` and then calls `then`. */
  async function answerTo(text: string, then: (socket: net.Socket) => void = () => {}, line = 'GET /v1/pets HTTP/1.1') {
    const begin = (socket: net.Socket, head: string) => {
      socket.write(withIdOf(head, text));
      then(socket);
    };
    const { stack, key } = await stackBefore(begin, { CORE_TIMEOUT_MS: '500' });
    const { socket, received } = await connectRaw(stack.gateway);
    socket.allowHalfOpen = false;
    socket.write(`${line}\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n\r\n`);
    const closed = once(socket, 'close', { signal: AbortSignal.timeout(20_000) });
    const fault = await closed.then(
      () => undefined,
      ({ code }) => code,
    );
    await untilNothingIsHeld(stack);
    return { received: received(), fault, log: stack.log };
  }

  test.for([
    ['stops', HEAD + 'x'.repeat(500_000), undefined],
    ['stops between chunks', CHUNKS, undefined],
    ['closes', HEAD + 'x'.repeat(500_000), close],
    ['closes between chunks', CHUNKS, close],
    ['resets its connection', CHUNKS, reset],
    ['sends a malformed chunk', `${CHUNKS}no chunk\r\n`, undefined],
  ] as const)('is cut off if the core %s', async ([, text, then]) => {
    for (const method of ['GET', 'POST']) {
      const { received, log } = await answerTo(text, then, `${method} /v1/pets HTTP/1.1`);
      expect(received).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
      expect(received).not.toMatch(/\r\n0\r\n\r\n$/);
      expect(received.length).toBeLessThan(600_000);
      const logged = log.filter(({ msg }) => msg === 'request').map(({ status }) => status);
      expect(logged).toEqual([then === undefined && !text.includes('no chunk') ? 504 : 502]);
    }
  });

  test('resets the connection of an HTTP/1.0 client, to which a normal close means a complete response', async () => {
    const old = 'GET /v1/pets HTTP/1.0';
    const { received, fault } = await answerTo(CHUNKS, close, old);
    expect([received.slice(0, 15), fault]).toEqual(['HTTP/1.1 200 OK', 'ECONNRESET']);
    expect(await answerTo(`${CHUNKS}0\r\n\r\n`, undefined, old)).toMatchObject({ fault: undefined });
  });

  test('is replaced with an error if no byte of its body has arrived', async () => {
    const begin = (socket: net.Socket, head: string) => void socket.write(withIdOf(head, HEAD));
    const { stack, get } = await stackBefore(begin, { CORE_TIMEOUT_MS: '500' });
    const { status, json } = await get();
    expect([status, (json as { code: string }).code]).toEqual([504, 'gateway_timeout']);
    await untilNothingIsHeld(stack);
  });
});

test('a large response with trailers arrives without them, and its connection is reused', async () => {
  const sockets = new Set<net.Socket>();
  const { get } = await stackBefore((socket, head) => {
    sockets.add(socket);
    const chunks = `186A0\r\n${'x'.repeat(100_000)}\r\n`.repeat(5);
    socket.write(withIdOf(head, `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}0\r\nX: a\r\n\r\n`));
  });
  for (let round = 0; round < 5; round++) {
    const { status, text, headers } = await get();
    expect([status, text === 'x'.repeat(500_000), headers.trailer]).toEqual([200, true, undefined]);
  }
  // The first request used a shared connection and was repeated on another one.
  expect(sockets.size).toBeLessThanOrEqual(2);
});

/** The size of a response that the gateway must never buffer as a whole. */
const HUGE = 60 * MEGABYTE;
const PIECE = Buffer.alloc(65_536, 'x');
/** The maximum size of the kernel's and the gateway's buffers together. */
const MOST_UNDER_WAY = 40_000_000;

let taken = 0;
/** A core that sends a huge response only as fast as it is read. */
const sending = await serveHttp((request, response) => {
  if (request.url !== '/v1/pets?huge') return void response.end('[]');
  taken = 0;
  response.setHeader('Content-Length', HUGE);
  pipeline(Readable.from(pieces()), response).catch(() => {});
});
const huge = await stackBefore(sending);

function* pieces(): Generator<Buffer> {
  for (; taken < HUGE; taken += PIECE.length) yield PIECE.subarray(0, HUGE - taken);
}

/** Returns a paused client connection that has requested the huge response. */
async function askForHuge(stack = huge.stack, key = huge.key): Promise<Socket> {
  const { socket } = await connectRaw(stack.gateway);
  socket.allowHalfOpen = false;
  // Without the listener of connectRaw, the response is not collected in memory.
  socket.removeAllListeners('data').pause();
  socket.write(`GET /v1/pets?huge HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\nConnection: close\r\n\r\n`);
  return socket;
}

/** Waits until the core has sent nothing for a while. @returns the number of bytes sent so far */
async function untilStill(): Promise<number> {
  for (let before = -1; before !== taken || taken === 0; await sleep(300)) before = taken;
  return taken;
}

async function bytesUntilEnd(socket: Socket): Promise<number> {
  socket.resume();
  await once(socket, 'close');
  return socket.bytesRead;
}

test('a response that its client does not read waits in the core and arrives completely once it is read', async () => {
  const socket = await askForHuge();
  expect(await untilStill()).toBeLessThan(MOST_UNDER_WAY);
  const received = await bytesUntilEnd(socket);
  expect(received).toBeGreaterThan(HUGE);
  expect(received).toBeLessThan(HUGE + 2_000);
});

test('the log and the list of requests say that a client was cut because it did not read', async () => {
  const stack = await startStack({ CORE_URL: sending }, { answerMs: 500, checkEveryMs: 100 });
  const socket = await askForHuge(stack, await stack.issueKey(UNLIMITED));
  const reason = 'The connection was cut because the client was too slow to read the response.';
  const isOurs = ({ msg, status }: { msg?: unknown; status?: unknown }) => msg === 'request' && status === 499;
  await expect.poll(() => stack.log.find(isOurs)).toMatchObject({ level: 30, reason });
  const { requests } = (await stack.admin('GET', '/requests?status=499')).json as { requests: unknown[] };
  const advice = 'Make the client read faster, or request smaller pages (limit).';
  expect(requests).toEqual([expect.objectContaining({ status: 499, reason, advice })]);
  socket.destroy();
});

const LARGE = Buffer.alloc(MEGABYTE, 'x');
/** Long enough for the gateway to see the close, but shorter than the interval of its checks for closed connections. */
const AHEAD_MS = 5;
const ROUNDS = 5;
/**
 * Less than the maximum for one client, so that requests still reach the core if every request of a round holds a
 * connection.
 */
const IN_A_ROUND = 20;
/** Long enough for the gateway to read what was sent. */
const LATER_MS = 100;

/** Starts a core whose requests are answered by the test. */
async function heldCore(): Promise<{ url: string; next: () => Promise<ServerResponse> }> {
  const [asked, waiting]: [ServerResponse[], ((response: ServerResponse) => void)[]] = [[], []];
  const url = await serveHttp((request, response) => {
    response.setHeader('X-Request-Id', String(request.headers['x-request-id']));
    const take = waiting.shift();
    if (take === undefined) asked.push(response);
    else take(response);
  });
  return { url, next: async () => asked.shift() ?? (await new Promise((resolve) => waiting.push(resolve))) };
}

/** Starts a gateway in front of such a core, and issues a key for which it expects large responses. */
async function setUp(settings: Record<string, string> = {}) {
  const core = await heldCore();
  const { stack, key, get } = await stackBefore(core.url, settings);
  const list = () => get();
  const first = list();
  (await core.next()).end(LARGE);
  expect((await first).status).toBe(200);
  return { stack, next: core.next, list, ask: (requests: number) => ask(stack, key, requests) };
}

async function ask(stack: Stack, key: string, requests: number): Promise<Socket> {
  const { socket } = await connectRaw(stack.gateway);
  socket.write(`GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n\r\n`.repeat(requests));
  return socket;
}

test('large responses to clients that have just disconnected hold no connection', async () => {
  const { stack, next, list, ask } = await setUp();
  for (let round = 0; round < ROUNDS; round++) {
    for (let left = 0; left < IN_A_ROUND; left++) {
      const client = await ask(1);
      const response = await next();
      client.resetAndDestroy();
      await sleep(AHEAD_MS);
      response.end(LARGE);
    }
    await untilNothingIsHeld(stack);
  }
  const answers = Array.from({ length: MOST_ALONE }, list);
  const held = await Promise.all(answers.map(next));
  for (const response of held) response.end(LARGE);
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(answers.map(() => 200));
});

test('a large response to a client that has disconnected is not requested again, and the next one only once', async () => {
  const core = await heldCore();
  const { stack, key, get } = await stackBefore(core.url);
  const small = get();
  (await core.next()).end('[]');
  expect((await small).status).toBe(200);
  const client = await ask(stack, key, 1);
  const response = await core.next();
  client.resetAndDestroy();
  await sleep(LATER_MS);
  response.end(LARGE);
  await untilNothingIsHeld(stack);
  const next = get();
  (await core.next()).end(LARGE);
  expect((await next).status).toBe(200);
  expect((await scrape(stack.adminUrl)).sum('gateway_upstream_asked_again_total')).toBe(0);
});

test('pipelined requests hold no connection after their client has disconnected, and each is logged', async () => {
  // The first of three is never answered.
  const { stack, next, ask } = await setUp({ CORE_TIMEOUT_MS: '1000' });
  const lines = () => stack.log.filter(({ msg }) => msg === 'request').length;
  const before = lines();
  const client = await ask(3);
  await next();
  const [second, third] = [await next(), await next()];
  second.end(LARGE);
  await sleep(LATER_MS);
  client.resetAndDestroy();
  await sleep(LATER_MS);
  third.end(LARGE);
  await untilNothingIsHeld(stack);
  await expect.poll(() => lines() - before).toBe(3);
});
