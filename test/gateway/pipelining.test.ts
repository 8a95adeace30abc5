import type { IncomingMessage, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { RequestBytes } from '../../shared/http/request-head.ts';
import { startServer } from '../../shared/http/server.ts';
import { cleanUp } from '../support/clean-up.ts';
import { dice } from '../support/fuzz.ts';
import { connectRaw } from '../support/raw-client.ts';
import { thoroughly } from '../support/thorough.ts';

/** Starts a server that answers each request on command, with its path and body. */
async function holdingServer(unanswered: number) {
  const waiting: { response: ServerResponse; body: Promise<string> }[] = [];
  let most = 0;
  const server = await startServer({
    host: '127.0.0.1',
    port: 0,
    onRequest: (request, response) => {
      waiting.push({ response, body: text(request).catch(() => '') });
      most = Math.max(most, waiting.length);
    },
    limits: { unanswered },
  });
  cleanUp(() => server.stop({ graceMs: 0 }));
  /** Answers this many requests, the oldest first. */
  const answer = async (count: number) => {
    for (let answered = 0; answered < count; await nextTurn()) {
      const { response, body } = waiting[0] ?? {};
      if (response === undefined) continue;
      const received = await body;
      waiting.shift();
      response.end(`${response.req.url} ${received}`);
      answered += 1;
    }
  };
  return { url: server.url, waiting, answer, most: () => most };
}

async function connect(url: string) {
  const { socket, received, closed } = await connectRaw(url);
  return { socket, closed, received, bodies: () => received().match(/^\/\d+ .*?(?=HTTP|$)/gm) ?? [] };
}

/** Returns, in turn, a request without a body, one with a length, and one in chunks. */
function request(at: number): string {
  const head = `POST /${at} HTTP/1.1\r\nHost: a\r\n`;
  if (at % 3 === 0) return `GET /${at} HTTP/1.1\r\nHost: a\r\n\r\n`;
  if (at % 3 === 1) return `${head}Content-Length: 4\r\n\r\nGET `;
  return `${head}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n`;
}
const answerTo = (at: number): string => `/${at} ${['', 'GET ', 'abcd'][at % 3]}`;

test.for([1, 16])('at most %i pipelined requests run at once, and each gets its own response', async (unanswered) => {
  const { url, waiting, answer, most } = await holdingServer(unanswered);
  const { socket, bodies } = await connect(url);
  const count = 900;
  const bytes = Array.from({ length: count }, (_, at) => request(at)).join('');
  // The pieces end anywhere: within a head, a body or a chunk size.
  for (let at = 0, piece = 1; at < bytes.length; piece = (piece * 7) % 9_973) {
    socket.write(bytes.slice(at, at + piece));
    at += piece;
  }
  await sleep(200);
  expect(waiting).toHaveLength(unanswered);
  await answer(count);
  await expect.poll(bodies).toEqual(Array.from({ length: count }, (_, at) => answerTo(at)));
  expect(most()).toBe(unanswered);
});

test.for([1, 16])('a client that does not read gets all responses once it does', async (unanswered) => {
  const { url, waiting, answer } = await holdingServer(unanswered);
  const { socket, bodies } = await connect(url);
  socket.pause();
  for (let at = 0; at < 300; at++) socket.write(request(at));
  await answer(100);
  socket.resume();
  await answer(200);
  await expect.poll(bodies).toEqual(Array.from({ length: 300 }, (_, at) => answerTo(at)));
  expect(waiting).toEqual([]);
});

test('no request begins after a response that closes the connection, even if sixteen may run at once', async () => {
  const { url, waiting } = await holdingServer(16);
  const { socket, closed } = await connect(url);
  for (let at = 0; at < 100; at++) socket.write(request(3 * at));
  await expect.poll(() => waiting.length).toBe(16);
  const last = waiting[15]?.response as ServerResponse;
  last.shouldKeepAlive = false;
  for (const { response } of waiting) response.end();
  await closed;
  await sleep(50);
  expect(waiting).toHaveLength(16);
});

test('responses that were held back do not affect later connections', async () => {
  const { url, answer } = await holdingServer(1);
  const count = 900;
  const bytes = Array.from({ length: count }, (_, at) => `GET /${at} HTTP/1.1\r\nHost: a\r\n\r\n`).join('');
  for (let connection = 0; connection < 5; connection++) {
    const { socket, received } = await connect(url);
    socket.write(bytes);
    await answer(count);
    await expect.poll(() => received().match(/HTTP\/1\.1 200/g)).toHaveLength(count);
    socket.destroy();
  }
});

const FRAGMENTS = [
  ...['\r\n', '\r\n\r\n', '\n', '\r', ' ', '0', '5', '4', 'a', ';', ';a=b', ';a="', 'fff', 'X: y\r\n'],
  ...['0\r\n\r\n', '5\r\nhello\r\n', '4\r\n\r\n\r\n\r\n', '00004;a=b\r\nabcd\r\n', '0\r\nX: y\r\n\r\n'],
  ...[request(0), request(1), request(2), request(0).replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')],
  'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n',
  'POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n',
  'HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n',
];

test('one request runs at a time and none after a close, whatever bytes arrive and however they are split', async () => {
  let [running, most, behindClose] = [0, 0, 0];
  const server = await startServer({
    host: '127.0.0.1',
    port: 0,
    onRequest: ({ socket }, response) => {
      running += 1;
      most = Math.max(most, running);
      if (closed.has(socket)) behindClose += 1;
      if (!response.shouldKeepAlive) closed.add(socket);
      response.once('close', () => {
        running -= 1;
      });
      setImmediate(() => response.end());
    },
  });
  cleanUp(() => server.stop({ graceMs: 0 }));
  const closed = new WeakSet<object>();
  const roll = dice(1);
  for (let time = thoroughly(3_000, 1_000); time > 0; time--) {
    const bytes = Array.from({ length: 2 + roll(14) }, () => FRAGMENTS[roll(FRAGMENTS.length)]).join('');
    const { socket, closed: over } = await connectRaw(server.url);
    const at = roll(3) === 0 ? roll(bytes.length) : bytes.length;
    socket.write(bytes.slice(0, at), 'latin1');
    if (at < bytes.length) await sleep(1);
    socket.end(bytes.slice(at), 'latin1');
    await over;
    expect([bytes, most, behindClose]).toEqual([bytes, 1, 0]);
  }
});

test('each of many consecutive long heads is converted to text only once', () => {
  const heads = 50;
  const head = `GET /${'x'.repeat(1_100)} HTTP/1.1\r\nHost: a\r\n\r\n`;
  const buffer = Buffer.from(head.repeat(heads), 'latin1');
  let read = 0;
  buffer.toString = (encoding, from = 0, to = buffer.length) => {
    read += Math.min(to, buffer.length) - from;
    return Buffer.prototype.toString.call(buffer, encoding, from, to);
  };
  const bytes = new RequestBytes();
  const ends: number[] = [];
  for (let at = 0; at < buffer.length; ) {
    const end = bytes.endOfPart(buffer, at);
    if (typeof end !== 'number') expect.fail(end.code);
    bytes.follow({ complete: true } as IncomingMessage);
    ends.push(end);
    at = end;
  }
  expect(ends).toEqual(Array.from({ length: heads }, (_, at) => (at + 1) * head.length));
  expect(read).toBeLessThanOrEqual(2 * buffer.length);
});
