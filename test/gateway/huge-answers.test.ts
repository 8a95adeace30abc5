import { once } from 'node:events';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { send } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { connectRaw } from '../support/raw-client.ts';
import { startStack, UNLIMITED } from '../support/stack.ts';

/** An answer of 100 MB passes through. It is never in the gateway as a whole and does not delay other answers. */

const HUGE = 100_000_000;
const PIECE = Buffer.alloc(65_536, 'x');
/** What the kernel buffers for both connections, and the gateway's own buffers. */
const MOST_UNDER_WAY = 40_000_000;
/** Much less than the gateway's timeout for the core. */
const MOST_WAIT_MS = 2_000;

let taken = 0;
/** Sends answers in order, a huge one only as fast as it is read. */
const core = await serveHttp((request, response) => {
  if (request.url !== '/v1/pets?huge') return void response.end('[]');
  taken = 0;
  response.setHeader('Content-Length', HUGE);
  pipeline(Readable.from(pieces()), response).catch(() => {});
});
const stack = await startStack({ CORE_URL: core });
const [greedy, other] = await Promise.all([stack.issueKey(UNLIMITED), stack.issueKey(UNLIMITED)]);

function* pieces(): Generator<Buffer> {
  for (; taken < HUGE; taken += PIECE.length) yield PIECE.subarray(0, HUGE - taken);
}

/** A paused client connection that has requested the huge answer. */
async function askForHuge(): Promise<Socket> {
  const { socket } = await connectRaw(stack.gateway);
  socket.allowHalfOpen = false;
  // What it reads is not kept.
  socket.removeAllListeners('data').pause();
  socket.write(`GET /v1/pets?huge HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${greedy}\r\nConnection: close\r\n\r\n`);
  return socket;
}

/** Waits until the core cannot send more for a while. */
async function untilStill(): Promise<number> {
  for (let before = -1; before !== taken || taken === 0; await sleep(300)) before = taken;
  return taken;
}

async function bytesUntilEnd(socket: Socket): Promise<number> {
  socket.resume();
  await once(socket, 'close');
  return socket.bytesRead;
}

test('an answer that its client does not read waits in the core and arrives completely once it is read', async () => {
  const socket = await askForHuge();
  expect(await untilStill()).toBeLessThan(MOST_UNDER_WAY);
  const received = await bytesUntilEnd(socket);
  expect(received).toBeGreaterThan(HUGE);
  expect(received).toBeLessThan(HUGE + 2_000);
});

test('other reads do not wait behind a huge answer that its client does not read', async () => {
  await askForHuge();
  await untilStill();
  const startedAt = performance.now();
  const answers = await Promise.all(Array.from({ length: 20 }, () => send(`${stack.gateway}/v1/pets`, { key: other })));
  expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
  expect(performance.now() - startedAt).toBeLessThan(MOST_WAIT_MS);
});
