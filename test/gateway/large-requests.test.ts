import { once } from 'node:events';
import { expect, test } from 'vitest';
import { sendBytes } from '../support/http.ts';
import { connectRaw } from '../support/raw-client.ts';
import { startStack } from '../support/stack.ts';

/** Tests when bodies that are too large are refused, what their clients get, and how connections are closed. */

const stack = await startStack();
const key = await stack.issueKey({ plan: 'enterprise', minute: 10_000, day: 10_000 });
const LIMIT = 65_536;

const KEY = `Authorization: Bearer ${key}`;
const JSON_TYPE = 'Content-Type: application/json';
const CHUNKED = 'Transfer-Encoding: chunked';
const POST = 'POST /v1/pets HTTP/1.1';
const headOf = (line: string, headers: readonly string[]): string => [line, 'Host: a', ...headers, '', ''].join('\r\n');
const head = (...headers: string[]): string => headOf(POST, [KEY, ...headers]);

/** Sends the beginning of a request and waits for a response. */
async function answerTo(beginning: string): Promise<string> {
  const { socket, received } = await connectRaw(stack.gateway);
  socket.write(beginning);
  await expect.poll(received).toContain('}');
  socket.destroy();
  return received();
}

const TOO_LARGE = [413, 'payload_too_large'] as const;
const UNSUPPORTED = [415, 'unsupported_media_type'] as const;

test.for([
  ['announced as one byte too long', head(JSON_TYPE, `Content-Length: ${LIMIT + 1}`), TOO_LARGE],
  ['announced as 10 GB long', head(JSON_TYPE, 'Content-Length: 10000000000'), TOO_LARGE],
  ['one byte too long and in chunks', `${head(JSON_TYPE, CHUNKED)}10001\r\n${'a'.repeat(LIMIT + 1)}`, TOO_LARGE],
  ['in one chunk of 4 GB', `${head(JSON_TYPE, CHUNKED)}ffffffff\r\n${'a'.repeat(LIMIT + 1)}`, TOO_LARGE],
  ['in too many chunks of one byte', head(JSON_TYPE, CHUNKED) + '1\r\na\r\n'.repeat(LIMIT + 1), TOO_LARGE],
  ['compressed', head(JSON_TYPE, 'Content-Encoding: gzip', 'Content-Length: 70000'), UNSUPPORTED],
  ['compressed and in chunks', head(JSON_TYPE, 'Content-Encoding: br', CHUNKED), UNSUPPORTED],
] as const)(
  'a body %s is refused before all of it has arrived, and its connection is closed',
  async ([, sent, [status, code]]) => {
    const answer = await answerTo(sent);
    expect(answer).toMatch(
      new RegExp(`^HTTP/1.1 ${status} [\\s\\S]*X-RateLimit-Limit: 10000\r\n[\\s\\S]*"code":"${code}"`),
    );
    expect(answer).toMatch(/\r\nConnection: close\r\n/i);
  },
);

test('a body of 65,536 bytes is read, both with a length and in chunks', async () => {
  const body = `{"name":"${'a'.repeat(LIMIT - 26)}","categoryId":1}`.slice(0, LIMIT);
  for (const sent of [
    `${head(JSON_TYPE, `Content-Length: ${LIMIT}`, 'Connection: close')}${body}`,
    `${head(JSON_TYPE, CHUNKED, 'Connection: close')}10000\r\n${body}\r\n0\r\n\r\n`,
  ])
    expect(await sendBytes(stack.gateway, sent)).toMatch(/^HTTP\/1.1 400 [\s\S]*name must have 1 to 200/);
});

const CHUNK = `10000\r\n${'x'.repeat(65_536)}\r\n`;
/** The buffers of the kernel for both ends of a connection, with a margin. */
const MOST_BYTES = 32_000_000;
/** A gateway that has read this much evidently never stops reading. */
const GIVEN_UP_AT = 256_000_000;
const LONG = 'Content-Length: 1000000000000';

test.for([
  ['in chunks', POST, [KEY, CHUNKED], 413],
  ['with a length', POST, [KEY, LONG], 413],
  ['in one chunk', POST, [KEY, `${CHUNKED}\r\n\r\nfffffffffff`], 413],
  ['without a key', POST, [CHUNKED], 401],
  ['without a key and with a length', POST, [LONG], 401],
  ['for an operation that accepts none', 'GET /v1/pets HTTP/1.1', [KEY, CHUNKED], 400],
  ['for an unknown path', 'POST /v1/nothing HTTP/1.1', [KEY, CHUNKED], 404],
] as const)('a connection with an endless body is closed: %s', async ([, line, headers, status]) => {
  const { socket, received } = await connectRaw(stack.gateway);
  socket.allowHalfOpen = false;
  const cut = new AbortController();
  socket.once('close', () => cut.abort());
  socket.write(headOf(line, [JSON_TYPE, ...headers]));
  while (!socket.destroyed && socket.bytesWritten < GIVEN_UP_AT)
    if (!socket.write(CHUNK)) await once(socket, 'drain', { signal: cut.signal }).catch(() => {});
  // A reset discards a response that was not read in time.
  if (received() !== '') expect(Number(received().split(' ', 2)[1])).toBe(status);
  expect(socket.bytesWritten).toBeLessThan(MOST_BYTES);
});

/** More bytes than the kernel can buffer. */
const BYTES = 8_000_000;
/**
 * After a refusal, the server reads at 8 MB a second, over all connections together, what clients are still sending.
 */
const TIMES = 3;

test.for([
  ['without a key', 401, []],
  ['that is too large', 413, [KEY]],
] as const)('a client that sends a whole 8 MB POST %s before it reads always gets %i', async ([, status, headers]) => {
  const post = async () => {
    const { socket, received } = await connectRaw(stack.gateway);
    socket.allowHalfOpen = false;
    const closed = once(socket, 'close');
    socket.pause();
    socket.write(headOf(POST, [JSON_TYPE, ...headers, `Content-Length: ${BYTES}`]));
    socket.write(Buffer.alloc(BYTES, 'a'), () => socket.resume());
    await closed;
    expect([received().slice(0, 12), socket.errored]).toEqual([`HTTP/1.1 ${status}`, null]);
  };
  await Promise.all(Array.from({ length: TIMES }, post));
});
