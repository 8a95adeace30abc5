import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { readJsonBytes } from '../../shared/http/body.ts';
import { startServer } from '../../shared/http/server.ts';
import { cleanUp } from '../support/clean-up.ts';
import { connectRaw } from '../support/raw-client.ts';

/** Unread answers and unfinished requests fill connection buffers, but not the server's memory. */

const MEGABYTE = 1_000_000;
/** The kernel buffers less than 6 MB per connection. */
const UNREAD_BYTES = 8 * MEGABYTE;

const cuts: string[] = [];
const server = await startServer({
  host: '127.0.0.1',
  port: 0,
  onRequest: ({ url = '' }, response) => void response.end(Buffer.alloc(Number(url.slice(1)) * MEGABYTE)),
  limits: { unanswered: 16, unreadBytes: UNREAD_BYTES, checkEveryMs: 200 },
  onCut: (reason) => cuts.push(reason),
});
cleanUp(() => server.stop({ graceMs: 0 }));

/** Opens a connection that requests answers of these sizes at once and reads nothing. */
async function askFor(...megabytes: readonly number[]): Promise<Socket> {
  const { socket } = await connectRaw(server.url);
  socket.allowHalfOpen = false;
  socket.pause();
  socket.write(megabytes.map((size) => `GET /${size} HTTP/1.1\r\nHost: a\r\n\r\n`).join(''));
  return socket;
}

/** Reads until no more bytes arrive. @returns the number of bytes read */
async function readRest(socket: Socket): Promise<number> {
  socket.resume();
  for (let before = -1; before !== socket.bytesRead; await sleep(300)) before = socket.bytesRead;
  return socket.bytesRead;
}

const HELD_MS = 1_500;

test('connections with the most unread bytes are closed first, until the rest together are below the limit', async () => {
  const modest = await askFor(7);
  const greedy = [await askFor(20), await askFor(6, 6, 6)];
  await sleep(HELD_MS);
  expect(await readRest(modest)).toBeGreaterThan(7 * MEGABYTE);
  for (const bytes of await Promise.all(greedy.map(readRest))) expect(bytes).toBeLessThan(6 * MEGABYTE);
  expect(cuts).toEqual(['unread_answers', 'unread_answers']);
});

const BODY_BYTES = 60_000;
const JSON_TYPE = 'Content-Type: application/json\r\n';

test.for([
  ['waiting requests', '', 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'],
  ['an unfinished body', `POST / HTTP/1.1\r\nHost: a\r\n${JSON_TYPE}Content-Length: ${BODY_BYTES}\r\n\r\n`, ' '],
] as const)('connections with the most bytes of %s are closed first', async ([, head, part]) => {
  const cut: string[] = [];
  const waiting = await startServer({
    host: '127.0.0.1',
    port: 0,
    onRequest: (request, response) => void readJsonBytes(request, response, BODY_BYTES).catch(() => {}),
    limits: { unreadBytes: 60_000, checkEveryMs: 200 },
    onCut: (reason) => cut.push(reason),
  });
  cleanUp(() => waiting.stop({ graceMs: 0 }));
  const sockets: Socket[] = [];
  for (const bytes of [10_000, 20_000, 50_000]) {
    const { socket } = await connectRaw(waiting.url);
    socket.allowHalfOpen = false;
    socket.write(head + part.repeat(bytes / part.length));
    sockets.push(socket);
  }
  await expect.poll(() => cut).toEqual(['unread_answers']);
  await sleep(HELD_MS);
  expect([cut.length, ...sockets.map(({ destroyed }) => destroyed)]).toEqual([1, false, false, true]);
});
