import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { sendBytes } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const stack = await startStack();
const key = await stack.issueKey({ plan: 'enterprise', minute: 10_000, day: 10_000 });
const pets = `${stack.gateway}/v1/pets`;
const LIMIT = 65_536;

const head = (...headers: string[]): string =>
  ['POST /v1/pets HTTP/1.1', 'Host: a', `Authorization: Bearer ${key}`, ...headers, '', ''].join('\r\n');
const JSON_TYPE = 'Content-Type: application/json';
const CHUNKED = 'Transfer-Encoding: chunked';

/** Sends the beginning of a request and waits for an answer. */
async function answerTo(beginning: string): Promise<string> {
  const socket = net.connect(Number(new URL(pets).port), '127.0.0.1');
  let received = '';
  socket.on('error', () => {});
  socket.on('data', (chunk) => {
    received += chunk;
  });
  socket.write(beginning);
  for (let waited = 0; waited < 5_000 && !received.includes('}'); waited += 20) await sleep(20);
  socket.destroy();
  return received;
}

test.for([
  ['announced as a byte too long', head(JSON_TYPE, `Content-Length: ${LIMIT + 1}`), 413, 'payload_too_large'],
  ['announced as 10 GB long', head(JSON_TYPE, 'Content-Length: 10000000000'), 413, 'payload_too_large'],
  [
    'a byte too long in chunks',
    `${head(JSON_TYPE, CHUNKED)}10001\r\n${'a'.repeat(LIMIT + 1)}`,
    413,
    'payload_too_large',
  ],
  ['in one chunk of 4 GB', `${head(JSON_TYPE, CHUNKED)}ffffffff\r\n${'a'.repeat(LIMIT + 1)}`, 413, 'payload_too_large'],
  ['in chunks of a byte', head(JSON_TYPE, CHUNKED) + '1\r\na\r\n'.repeat(LIMIT + 1), 413, 'payload_too_large'],
  ['compressed', head(JSON_TYPE, 'Content-Encoding: gzip', 'Content-Length: 70000'), 415, 'unsupported_media_type'],
  ['compressed and in chunks', head(JSON_TYPE, 'Content-Encoding: br', CHUNKED), 415, 'unsupported_media_type'],
] as const)(
  'a body %s is refused before it has arrived completely, and its connection is closed',
  async ([, sent, status, code]) => {
    const answer = await answerTo(sent);
    expect(answer).toMatch(
      new RegExp(`^HTTP/1.1 ${status} [\\s\\S]*X-RateLimit-Limit: 10000\r\n[\\s\\S]*"code":"${code}"`),
    );
    expect(answer).toMatch(/\r\nConnection: close\r\n/i);
  },
);

test('a body of 65,536 bytes is read, whether with a length or in chunks', async () => {
  const body = `{"name":"${'a'.repeat(LIMIT - 26)}","categoryId":1}`.slice(0, LIMIT);
  for (const sent of [
    `${head(JSON_TYPE, `Content-Length: ${LIMIT}`, 'Connection: close')}${body}`,
    `${head(JSON_TYPE, CHUNKED, 'Connection: close')}10000\r\n${body}\r\n0\r\n\r\n`,
  ])
    expect(await sendBytes(pets, sent)).toMatch(/^HTTP\/1.1 400 [\s\S]*name must have 1 to 200/);
});
