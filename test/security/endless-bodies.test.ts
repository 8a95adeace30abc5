import { once } from 'node:events';
import net from 'node:net';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { startStack } from '../support/stack.ts';

/** An endless body is refused and soon ends its connection, for any reason of the refusal. */

const CHUNK = `10000\r\n${'x'.repeat(65_536)}\r\n`;
/** What the kernel buffers for both ends of a connection, and a margin. */
const MOST_BYTES = 32_000_000;
/** At this size the gateway would obviously read on forever. */
const GIVEN_UP_AT = 256_000_000;

const stack = await startStack();
const key = await stack.issueKey({ plan: 'enterprise', minute: 10_000, day: 10_000 });
const bearer = `Authorization: Bearer ${key}`;

/** Sends a request with an endless body. Returns its answer, and the bytes sent before the connection was cut. */
async function sendWithoutEnd(line: string, headers: readonly string[]): Promise<{ answer: string; bytes: number }> {
  const socket = net.connect(Number(new URL(stack.gateway).port), '127.0.0.1');
  cleanUp(() => socket.destroy());
  let answer = '';
  const closed = new AbortController();
  socket.on('error', () => {});
  socket.once('close', () => closed.abort());
  socket.on('data', (chunk) => {
    answer += chunk.toString('latin1');
  });
  socket.write([line, 'Host: a', 'Content-Type: application/json', ...headers, '', ''].join('\r\n'));
  while (!socket.destroyed && socket.bytesWritten < GIVEN_UP_AT)
    if (!socket.write(CHUNK)) await once(socket, 'drain', { signal: closed.signal }).catch(() => {});
  return { answer, bytes: socket.bytesWritten };
}

const CHUNKED = 'Transfer-Encoding: chunked';
const LONG = 'Content-Length: 1000000000000';
const POST = 'POST /v1/pets HTTP/1.1';

test.for([
  ['in chunks', POST, [bearer, CHUNKED], 413],
  ['of a length', POST, [bearer, LONG], 413],
  ['of one endless chunk', POST, [bearer, `${CHUNKED}\r\n\r\nfffffffffff`], 413],
  ['without a key', POST, [CHUNKED], 401],
  ['without a key, of a length', POST, [LONG], 401],
  ['where the operation takes none', 'GET /v1/pets HTTP/1.1', [bearer, CHUNKED], 400],
  ['where there is nothing', 'POST /v1/nothing HTTP/1.1', [bearer, CHUNKED], 404],
] as const)('an endless body, %s, closes its connection', async ([, line, headers, status]) => {
  const { answer, bytes } = await sendWithoutEnd(line, headers);
  // A reset discards an answer that was not read yet.
  if (answer !== '') expect(Number(answer.split(' ', 2)[1])).toBe(status);
  expect(bytes).toBeLessThan(MOST_BYTES);
});
