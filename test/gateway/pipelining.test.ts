import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startServer } from '../../shared/http/server.ts';
import { cleanUp } from '../support/clean-up.ts';
import { dice } from '../support/fuzz.ts';
import { connectRaw } from '../support/raw-client.ts';
import { thoroughly } from '../support/thorough.ts';

/** Starts a server that answers each request on command, with its path and body. */
async function holdingServer(unanswered: number) {
  const waiting: { response: ServerResponse; text: () => string }[] = [];
  let most = 0;
  const server = await startServer({
    host: '127.0.0.1',
    port: 0,
    onRequest: (request, response) => {
      let body = '';
      request.on('data', (chunk) => {
        body += chunk;
      });
      waiting.push({ response, text: () => `${request.url} ${body}` });
      most = Math.max(most, waiting.length);
    },
    limits: { unanswered },
  });
  cleanUp(() => server.stop({ graceMs: 0 }));
  /** Answers the oldest request. */
  const answerOne = () => {
    const { response, text } = waiting.shift() ?? {};
    if (text !== undefined) response?.end(text());
  };
  return { url: server.url, waiting, answerOne, most: () => most };
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
  const { url, waiting, answerOne, most } = await holdingServer(unanswered);
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
  for (let waited = 0; bodies().length < count && waited < 10_000; waited++) {
    answerOne();
    await sleep(0);
  }
  expect(bodies()).toEqual(Array.from({ length: count }, (_, at) => answerTo(at)));
  expect(most()).toBe(unanswered);
});

test.for([1, 16])('a client that does not read gets all responses once it does', async (unanswered) => {
  const { url, waiting, answerOne } = await holdingServer(unanswered);
  const { socket, bodies } = await connect(url);
  socket.pause();
  for (let at = 0; at < 300; at++) socket.write(request(at));
  for (let at = 0; at < 100; at++) {
    answerOne();
    await sleep(1);
  }
  socket.resume();
  for (let waited = 0; bodies().length < 300 && waited < 5_000; waited++) {
    answerOne();
    await sleep(0);
  }
  expect(bodies()).toEqual(Array.from({ length: 300 }, (_, at) => answerTo(at)));
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
  const { url, answerOne, waiting } = await holdingServer(1);
  const count = 900;
  const bytes = Array.from({ length: count }, (_, at) => `GET /${at} HTTP/1.1\r\nHost: a\r\n\r\n`).join('');
  for (let connection = 0; connection < 5; connection++) {
    const { socket, received } = await connect(url);
    socket.write(bytes);
    const answeredAll = () => {
      while (waiting.length > 0) answerOne();
      return received().match(/HTTP\/1\.1 200/g)?.length;
    };
    await expect.poll(answeredAll, { interval: 1 }).toBe(count);
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
