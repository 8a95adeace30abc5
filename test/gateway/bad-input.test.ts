import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { post, send, sendBytes } from '../support/http.ts';
import { connectRaw } from '../support/raw-client.ts';
import { startStack } from '../support/stack.ts';

const stack = await startStack();
const key = await stack.issueKey({ plan: 'enterprise', minute: 10_000, day: 10_000 });
const pets = `${stack.gateway}/v1/pets`;

const good = '{"name":"Rex","categoryId":1}';
const bytes = (...parts: (string | number[])[]) => Buffer.concat(parts.map((part) => Buffer.from(part as string)));

const NO_INTEGER = /categoryId must be an integer from -2\^63 to 2\^63-1/;
const NO_INTEGERS = ['"1"', '1.5', '1e400', '1e19', '1e-400', '9223372036854775808', '-9223372036854775809', 'null'];

const badBodies: [name: string, body: string | Buffer, message: RegExp][] = [
  ['missing', '', /body is required/],
  ['not JSON', '{"name"', /not valid JSON/],
  ['an array', '[]', /JSON object is expected/],
  ['null', 'null', /JSON object is expected/],
  ['a string', '"Rex"', /JSON object is expected/],
  ['an unknown member', '{"name":"Rex","categoryId":1,"colour":"red"}', /"colour" is not known/],
  ['an id', '{"id":7,"name":"Rex","categoryId":1}', /"id" is not known/],
  ['__proto__', '{"name":"Rex","categoryId":1,"__proto__":{}}', /"__proto__" is not known/],
  ['no name', '{"categoryId":1}', /name is required/],
  ['no categoryId', '{"name":"Rex"}', /categoryId is required/],
  ['a name that consists of spaces', '{"name":"   ","categoryId":1}', /name must not be blank/],
  ['an empty name', '{"name":"","categoryId":1}', /name must have 1 to 200/],
  ['a name of 201 characters', `{"name":"${'a'.repeat(201)}","categoryId":1}`, /name must have 1 to 200/],
  ['a name that is a number', '{"name":1,"categoryId":1}', /name must be a string/],
  ['a lone surrogate in the name', '{"name":"\\ud800","categoryId":1}', /well-formed Unicode/],
  ['NUL in the name', '{"name":"a\\u0000b","categoryId":1}', /control characters/],
  ['a line break in the name', '{"name":"a\\nb","categoryId":1}', /control characters/],
  ['status "gone"', '{"name":"Rex","categoryId":1,"status":"gone"}', /status must be one of available, pending, sold/],
  ['invalid UTF-8', bytes('{"name":"', [0xff], '","categoryId":1}'), /not valid UTF-8/],
  ['an overlong UTF-8 form', bytes('{"name":"', [0xc0, 0xaf], '","categoryId":1}'), /not valid UTF-8/],
  ['a byte order mark', bytes([0xef, 0xbb, 0xbf], good), /not valid JSON/],
  ['a member twice', '{"name":"Rex","name":"Max","categoryId":1}', /member "name" twice/],
  ['a member twice, once with an escape', '{"name":"Rex","n\\u0061me":"Max","categoryId":1}', /member "name" twice/],
  ['nesting 30,000 levels deep', '['.repeat(30_000) + ']'.repeat(30_000), /nested more than/],
  ...[...NO_INTEGERS, '9'.repeat(50_000)].map((id): [string, string, RegExp] => [
    `categoryId ${id.slice(0, 20)}`,
    `{"name":"Rex","categoryId":${id}}`,
    NO_INTEGER,
  ]),
];

test.for(badBodies)('a body is refused with a message: %s', async ([, body, message]) => {
  const answer = await post(pets, body, { key });
  expect(answer.json).toEqual({ code: 'invalid_request', message: expect.stringMatching(message), status: 400 });
  expect(answer.status).toBe(400);
  expect(answer.headers['x-ratelimit-limit']).toBe('10000');
});

test('a body of 70 kB is refused with a message', async () => {
  const { status, json, headers } = await post(pets, `{"name":"${'a'.repeat(70_000)}","categoryId":1}`, { key });
  const message = expect.stringContaining('too large');
  expect([status, json]).toEqual([413, { code: 'payload_too_large', message, status: 413 }]);
  expect(headers['x-ratelimit-limit']).toBe('10000');
});

test('a message that quotes the body has at most 1,000 characters', async () => {
  for (const body of [`{"${'n'.repeat(60_000)}":1}`, `{"x${'🐈'.repeat(7_000)}":1,"x${'🐈'.repeat(7_000)}":1}`]) {
    const { status, json } = await post(pets, body, { key });
    expect(status).toBe(400);
    const { message } = json as { message: string };
    expect([message.length, message.isWellFormed(), message.at(-1)]).toEqual([1_000, true, '…']);
  }
});

test.for([
  ['the type text/plain', { 'content-type': 'text/plain' }],
  ['no type', { 'content-type': [] as string[] }],
  ['compression', { 'content-encoding': 'gzip' }],
] as const)('a body with %s gets 415', async ([, headers]) => {
  const { status, json } = await post(pets, good, { key, headers: headers as Record<string, string> });
  expect([status, json]).toEqual([415, expect.objectContaining({ code: 'unsupported_media_type' })]);
});

test.for(
  (
    [
      [
        400,
        'invalid_parameter',
        '/v1/pets',
        '?limit=0 ?limit=101 ?limit=abc ?limit=1.5 ?limit= ?limit=-1 ?limit=1&limit=2',
      ],
      [
        400,
        'invalid_parameter',
        '/v1/pets',
        '?limit=%31%30%31 ?status=gone ?status= ?status=sold&status=sold ?after=abc',
      ],
      [400, 'invalid_parameter', '/v1/pets', '?after=9223372036854775808 /abc /1.0 /1e1 /+1 /%31'],
      [400, 'invalid_parameter', '/v1/pets', '/9223372036854775808 /-9223372036854775809'],
      [404, 'not_found', '/v1/pets', '/0 /-1 /9223372036854775807 /-9223372036854775808 / /1/ /1/2'],
      [404, 'not_found', '', '/ /v1 /v1/store /v1/store/orders/ /v1/store/orders/1 /v2/pets /V1/pets /livez /metrics'],
    ] as const
  ).flatMap(([status, code, base, rests]) => rests.split(' ').map((rest) => [base + rest, status, code] as const)),
)('GET %s gets %i %s', async ([path, status, code]) => {
  const answer = await send(stack.gateway + path, { key });
  const parameter = /\?(\w+)=/.exec(path)?.[1];
  const message = expect.stringMatching(parameter === undefined ? /./ : `^${parameter} `);
  expect([answer.status, answer.json]).toEqual([status, { code, message, status }]);
});

test('unknown parameters are ignored', async () => {
  expect((await send(`${pets}?limit=1&colour=red`, { key })).status).toBe(200);
});

test.for([
  ['DELETE', '/v1/pets', 'GET, HEAD, POST'],
  ['PUT', '/v1/pets', 'GET, HEAD, POST'],
  ['PATCH', '/v1/pets/1', 'GET, HEAD'],
  ['DELETE', '/v1/pets/1', 'GET, HEAD'],
  ['POST', '/v1/store/orders', 'GET, HEAD'],
  ['TRACE', '/v1/pets', 'GET, HEAD, POST'],
  ['PROPFIND', '/v1/pets', 'GET, HEAD, POST'],
  ['PROPFIND', '/v1/pets/1', 'GET, HEAD'],
  ['TRACE', '/docs/', 'GET, HEAD'],
] as const)('%s %s gets 405 with the allowed methods', async ([method, path, allow]) => {
  const { status, json, headers } = await send(`${stack.gateway}${path}`, { method, key });
  expect([status, json]).toEqual([405, expect.objectContaining({ code: 'method_not_allowed', status: 405 })]);
  expect(headers.allow).toBe(allow);
  // The key pays, except for the reference.
  if (path !== '/docs/') expect(headers['x-ratelimit-limit']).toBe('10000');
});

test('a body for an operation that accepts none gets 400', async () => {
  const { status } = await send(pets, { method: 'GET', key, body: '{}' });
  expect(status).toBe(400);
});

let address = 1;

test.for([
  ['an invalid chunk size', 'zz\r\n', 400],
  ['a chunk extension of 20 kB', `2;a=${'x'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`, 413],
  ['trailers of 200 kB', `2\r\n{}\r\n0\r\n${`a: ${'x'.repeat(1_000)}\r\n`.repeat(200)}\r\n`, 431],
] as const)(
  'the refusal of a body with %s reports the limits of its key and is not charged to the address',
  async ([, body, status]) => {
    const owner = await stack.issueKey({ plan: 'enterprise', minute: 10_000, day: 10_000 });
    const from = `127.0.0.${++address}`;
    const lines = ['POST /v1/pets HTTP/1.1', 'Host: a', `Authorization: Bearer ${owner}`];
    const head = [...lines, 'Content-Type: application/json', 'Transfer-Encoding: chunked', '', ''].join('\r\n');
    for (const pieces of [[head + body], [head, body]]) {
      const { socket, received, closed } = await connectRaw(stack.gateway, { from });
      for (const piece of pieces) {
        socket.write(piece);
        await sleep(100);
      }
      await closed;
      expect(received()).toMatch(
        new RegExp(`^HTTP/1.1 ${status} [\\s\\S]*X-RateLimit-Limit: 10000\r\n[\\s\\S]*Connection: close`),
      );
    }
    expect((await send(pets, { from })).headers['x-ratelimit-remaining']).toBe('59');
    expect((await send(pets, { key: owner, from })).headers['x-ratelimit-remaining']).toBe('9997');
  },
);

test('refused requests add no pet', async () => {
  expect((await send(pets, { key })).text).toBe('[]');
});

test.for([
  ['the gateway', () => stack.gateway],
  ['the core', () => stack.core],
] as const)('%s responds immediately to a POST without a body', async ([, url]) => {
  const head = ['POST /v1/pets HTTP/1.1', 'Host: a', `Authorization: Bearer ${key}`, 'Connection: close', '', ''];
  expect(await sendBytes(url(), head.join('\r\n'))).toMatch(/^HTTP\/1.1 400 [\s\S]*body is required/);
});
