import { createCipheriv, createHash } from 'node:crypto';
import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import type net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { faultyCore, withIdOf } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { eventuallyScraped } from '../support/metrics.ts';
import { connectRaw } from '../support/raw-client.ts';
import { type Stack, startStack, UNLIMITED } from '../support/stack.ts';

/** Large answers are streamed, each to its client as the core sent it. What a client does not read harms no other. */

const MEGABYTE = 1_000_000;
/** Half of the connections to a core that carry one request each. */
const MOST_ALONE = 32;
let asked = 0;

const untilNothingIsHeld = ({ adminUrl }: Stack) =>
  eventuallyScraped(adminUrl, (metrics) => metrics.sum('gateway_upstream_in_flight')).toBe(0);

const made = new Map<string, Buffer>();

/** No two answers are alike, nor two parts of one. Each is made once, so that the core is quick. */
function bytesOf(seed: number, length: number): Buffer {
  const key = Buffer.alloc(16, seed);
  const bytes = made.get(`${seed} ${length}`) ?? createCipheriv('aes-128-ctr', key, key).update(Buffer.alloc(length));
  made.set(`${seed} ${length}`, bytes);
  return bytes;
}

const hashOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

/** Answers `?seed=…&length=…` with these bytes, with a length or `&chunked`; anything else with a short list. */
const CORE_URL = await serveHttp((request, response) => {
  const { searchParams: query } = new URL(request.url ?? '', 'http://core');
  response.setHeader('X-Request-Id', String(request.headers['x-request-id']));
  if (!query.has('seed')) return void response.end('[]');
  asked += 1;
  const length = Number(query.get('length'));
  if (!query.has('chunked')) response.setHeader('Content-Length', length);
  response.flushHeaders();
  response.end(bytesOf(Number(query.get('seed')), length));
});

describe('every byte arrives at its own client and in order', () => {
  /** More than the kernel buffers, so the gateway waits for slow readers. */
  const LENGTH = 16 * MEGABYTE;

  async function readSlowly(answer: IncomingMessage, pauseMs: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for await (const piece of answer) {
      pieces.push(piece as Buffer);
      if (pauseMs > 0 && pieces.length % 16 === 0) await sleep(pauseMs);
    }
    return Buffer.concat(pieces);
  }

  test.for([
    ['with a length', ''],
    ['in chunks', '&chunked'],
  ])('%s', async ([, framing]) => {
    // However slow this machine is: the core is in this process.
    const stack = await startStack({ CORE_URL, CORE_TIMEOUT_MS: '120000' });
    const key = await stack.issueKey(UNLIMITED);
    const one = async (seed: number) => {
      const url = `${stack.gateway}/v1/pets?seed=${seed}&length=${LENGTH}${framing}`;
      const request = http.get(url, { headers: { authorization: `Bearer ${key}` }, agent: false });
      const [answer] = (await once(request, 'response')) as [IncomingMessage];
      await sleep(50 * seed);
      return { status: answer.statusCode, hash: hashOf(await readSlowly(answer, seed % 3)) };
    };
    const seeds = [1, 2, 3, 4, 5, 6];
    const expected = seeds.map((seed) => ({ status: 200, hash: hashOf(bytesOf(seed, LENGTH)) }));
    expect(await Promise.all(seeds.map(one))).toEqual(expected);
  });
});

test('a client that reads none of its answers holds a few connections to the core, and no other client is refused', async () => {
  const stack = await startStack({ CORE_URL });
  const [greedy, other] = [await stack.issueKey(UNLIMITED), await stack.issueKey(UNLIMITED)];
  const path = `/v1/pets?seed=7&length=${2 * MEGABYTE}`;
  // Since its first answer it is known to ask for large ones.
  expect((await send(stack.gateway + path, { key: greedy })).status).toBe(200);
  const ask = `GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${greedy}\r\n\r\n`;
  asked = 0;
  const openMore = async () => {
    for (let opened = 0; opened < 10; opened++) (await connectRaw(stack.gateway)).socket.pause().write(ask.repeat(50));
  };
  const statuses = new Set<number>();
  // The first requests that wait for a connection to the core are given up after 5 s, while later ones wait.
  const end = performance.now() + 6_500;
  for (let round = 0; performance.now() < end; round++) {
    if (round % 10 === 0) await openMore();
    statuses.add((await send(`${stack.gateway}/v1/pets`, { key: other })).status);
    await sleep(50);
  }
  expect([...statuses]).toEqual([200]);
  // Of thousands. On a slow machine some of those that are sent are given up too, and others are sent.
  expect(asked).toBeLessThanOrEqual(10 * MOST_ALONE);
});

describe('a large answer that its core does not complete', () => {
  const HEAD = 'HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n';
  const CHUNKS = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n186A0\r\n${'x'.repeat(100_000)}\r\n`;

  const close = (socket: net.Socket): void => void socket.end();
  const reset = (socket: net.Socket): void => void sleep(100).then(() => socket.resetAndDestroy());

  /** What a client gets from a core that sends this, and then does that with the connection. */
  async function answerTo(text: string, then: (socket: net.Socket) => void = () => {}) {
    const url = await faultyCore((socket, head) => {
      socket.write(withIdOf(head, text));
      then(socket);
    });
    const stack = await startStack({ CORE_URL: url, CORE_TIMEOUT_MS: '500' });
    const key = await stack.issueKey(UNLIMITED);
    const { socket, received } = await connectRaw(stack.gateway);
    socket.allowHalfOpen = false;
    socket.write(`GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n\r\n`);
    await once(socket, 'close', { signal: AbortSignal.timeout(20_000) });
    await untilNothingIsHeld(stack);
    return received();
  }

  test.for([
    ['stops', HEAD + 'x'.repeat(500_000), undefined],
    ['stops between chunks', CHUNKS, undefined],
    ['closes', HEAD + 'x'.repeat(500_000), close],
    ['closes between chunks', CHUNKS, close],
    ['resets its connection', CHUNKS, reset],
    ['goes on with no chunk', `${CHUNKS}no chunk\r\n`, undefined],
  ] as const)('is cut off if the core %s', async ([, text, then]) => {
    const received = await answerTo(text, then);
    expect(received).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(received).not.toMatch(/\r\n0\r\n\r\n$/);
    expect(received.length).toBeLessThan(600_000);
  });

  test('is replaced by an error until a byte of its body has arrived', async () => {
    const url = await faultyCore((socket, head) => void socket.write(withIdOf(head, HEAD)));
    const stack = await startStack({ CORE_URL: url, CORE_TIMEOUT_MS: '500' });
    const { status, json } = await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey(UNLIMITED) });
    expect([status, (json as { code: string }).code]).toEqual([504, 'gateway_timeout']);
    await untilNothingIsHeld(stack);
  });
});

test('a large answer with trailers arrives without them, and its connection carries the next', async () => {
  const sockets = new Set<net.Socket>();
  const url = await faultyCore((socket, head) => {
    sockets.add(socket);
    const chunks = `186A0\r\n${'x'.repeat(100_000)}\r\n`.repeat(5);
    socket.write(withIdOf(head, `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}0\r\nX: a\r\n\r\n`));
  });
  const stack = await startStack({ CORE_URL: url });
  const key = await stack.issueKey(UNLIMITED);
  for (let round = 0; round < 5; round++) {
    const { status, text, headers } = await send(`${stack.gateway}/v1/pets`, { key });
    expect([status, text === 'x'.repeat(500_000), headers.trailer]).toEqual([200, true, undefined]);
  }
  // The first one came on a wire that other reads would share, and was asked for once more.
  expect(sockets.size).toBeLessThanOrEqual(2);
});
