import { expect, test } from 'vitest';
import { listeningCore } from '../support/faulty-core.ts';
import { sendBytes } from '../support/http.ts';
import { connectRaw } from '../support/raw-client.ts';
import { startStack } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';

const core = await listeningCore();
const { stack: recorded, key: ownKey } = await stackBefore(core.url);
const stack = await startStack();

test.for([
  ['a dot segment', '/v1/../v1/pets'],
  ['an encoded dot segment', '/v1/%2e%2e/v1/pets'],
  ['a dot segment with a parameter', '/v1/..;x=1/v1/pets'],
  ['an empty segment', '//v1/pets'],
  ['a backslash', '/v1\\pets'],
  ['an encoded slash', '/v1%2fpets'],
  ['an encoded backslash', '/v1/pets%5c1'],
  ['an encoded NUL', '/v1/pets/%00'],
  ['a broken encoding', '/v1/pets/%zz'],
  ['a fragment', '/v1/pets#x'],
  ['another host in absolute form', 'http://evil/v1/pets'],
  ['no host in absolute form', 'http:///v1/pets'],
  ['another scheme in absolute form', 'ftp://a/v1/pets'],
  ['a dot segment in absolute form', 'http://a/v1/../v1/pets'],
  ['an asterisk', '*'],
  ['a quote', '/v1/pets?x="'],
])('a request with %s in its target is refused and not forwarded', async ([, target]) => {
  const head = `GET ${target} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${ownKey}\r\n\r\n`;
  const raw = await sendBytes(recorded.gateway, head);
  expect(raw).toMatch(/^HTTP\/1.1 400 [\s\S]*"code":"invalid_request"/);
  expect(raw).toMatch(/\r\nConnection: close\r\n/i);
  expect(core.heads).toEqual([]);
});

const POST = 'POST /v1/pets HTTP/1.1\r\nhost: a\r\n';

test.for([
  ['two Host headers', 'GET /v1/pets HTTP/1.1\r\nhost: a\r\nhost: b\r\n'],
  ['an invalid Host', 'GET /v1/pets HTTP/1.1\r\nhost: x/../@y\r\n'],
  ['a transfer coding besides chunked', 'POST /v1/pets HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n'],
  ['chunks in HTTP/1.0', 'POST /v1/pets HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n'],
  ['no Host in HTTP/1.0', 'GET /v1/pets HTTP/1.0\r\n'],
  ['a Host of 260 characters', `GET /v1/pets HTTP/1.1\r\nhost: ${'a'.repeat(260)}\r\n`],
  ['two Content-Type headers', `${POST}content-type: application/json\r\nContent-Type: text/plain\r\n`],
  ['two Idempotency-Key headers', `${POST}idempotency-key: a\r\nidempotency-key: b\r\n`],
  ['an empty transfer coding before chunked', `${POST}transfer-encoding: ,chunked\r\n`],
  ['a length with leading zeros', `${POST}content-length: 005\r\n`],
  ['a length of 00', `${POST}content-length: 00\r\n`],
])('a request with %s is refused and not forwarded', async ([, head]) => {
  const raw = await sendBytes(recorded.gateway, `${head}authorization: Bearer ${ownKey}\r\n\r\n0\r\n\r\n`);
  expect(raw).toMatch(/^HTTP\/1.1 400 [\s\S]*\r\nConnection: close\r\n[\s\S]*"code":"invalid_request"/i);
  expect(core.heads).toEqual([]);
});

test('a request with Expect: 100-continue gets 100 once its headers are accepted', async () => {
  const key = await stack.issueKey();
  const body = '{"name":"Rex","categoryId":1}';
  const head = `${POST}authorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n`;
  const { socket, received } = await connectRaw(stack.gateway);
  socket.write(head);
  await expect.poll(received).toMatch(/^HTTP\/1.1 100 Continue\r\n\r\n$/);
  socket.write(body);
  await expect.poll(received).toMatch(/HTTP\/1.1 201 Created/);
  expect(await sendBytes(stack.gateway, head.replace(key, 'x'))).toMatch(/^HTTP\/1.1 401 /);
});

test.for([
  ['a target of 9 kB', `GET /${'a'.repeat(9_000)} HTTP/1.1\r\nhost: a\r\n`, '414', 'uri_too_long'],
  ['a target of 20 kB', `GET /${'a'.repeat(20_000)} HTTP/1.1\r\nhost: a\r\n`, '414', 'uri_too_long'],
  ['20 kB in one header', `GET / HTTP/1.1\r\nhost: a\r\nx: ${'a'.repeat(20_000)}\r\n`, '431', 'headers_too_large'],
  [
    '20 kB in many headers',
    `GET / HTTP/1.1\r\nhost: a\r\n${'x: abcdefgh\r\n'.repeat(1_600)}`,
    '431',
    'headers_too_large',
  ],
  ['200 kB of headers', `GET / HTTP/1.1\r\nhost: a\r\nx: ${'a'.repeat(200_000)}\r\n`, '431', 'headers_too_large'],
])(
  'a request with %s gets an error in the Error shape with limits, and its connection is closed',
  async ([, head, status, code]) => {
    const [lines = '', body = ''] = (await sendBytes(stack.gateway, `${head}\r\n`)).split('\r\n\r\n');
    expect(lines.startsWith(`HTTP/1.1 ${status} `)).toBe(true);
    expect(lines).toMatch(/\r\nX-RateLimit-Limit: 60\r\n[\s\S]*Connection: close(\r\n|$)/i);
    expect(JSON.parse(body)).toMatchObject({ code, status: Number(status) });
  },
);
