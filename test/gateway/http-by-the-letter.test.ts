import { expect, test } from 'vitest';
import { listeningCore } from '../support/faulty-core.ts';
import { send, sendBytes } from '../support/http.ts';
import { startStack } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';

/** Tests what the HTTP standards require of a server, one requirement per row. */

const core = await listeningCore();
const { stack, key } = await stackBefore(core.url, {}, { plan: 'enterprise', minute: 10_000, day: 10_000 });
const bearer = (separator = ' ') => `Authorization: Bearer${separator}${key}`;

const allows = (methods: string) => new RegExp(`^HTTP/1.1 204 [\\s\\S]*Allow: ${methods}\r\n`);
const OK = /^HTTP\/1.1 200 /;
const NOT_FOUND = /^HTTP\/1.1 404 /;
const NO_REQUEST = /^HTTP\/1.1 400 [\s\S]*"code":"invalid_request"/;
const NO_SUCH_VERSION = /^HTTP\/1.1 505 [\s\S]*"code":"http_version_not_supported"/;

/** Replacements for `GET /v1/pets HTTP/1.1`, `Host: a` and a valid Authorization header. */
interface Odd {
  readonly line?: string;
  readonly host?: string;
  readonly authorization?: string;
}
type Row = [what: string, rfc: string, odd: Odd, answer: RegExp, forwarded?: string];

test.for<Row>([
  [
    'a target in absolute form, in capitals and with a port',
    '9110 §4.2.3',
    { line: 'GET HTTP://A:80/v1/pets HTTP/1.1', host: 'a:80' },
    OK,
    'GET /v1/pets HTTP/1.1',
  ],
  ['a target in absolute form without a path', '9112 §3.2.1', { line: 'GET http://a?x HTTP/1.1' }, NOT_FOUND],
  ['a POST without a body', '9112 §6.3', { line: 'POST /v1/pets HTTP/1.1' }, OK, 'POST /v1/pets HTTP/1.1'],
  ...(
    [
      ['OPTIONS for a path', '/v1/pets', allows('GET, HEAD, POST, OPTIONS')],
      ['OPTIONS for a path with a parameter', '/v1/pets/1', allows('GET, HEAD, OPTIONS')],
      ['OPTIONS for *', '*', allows('GET, HEAD, POST, OPTIONS')],
    ] as const
  ).map(
    ([what, target, answer]): Row => [
      what,
      '9110 §9.3.7',
      { line: `OPTIONS ${target} HTTP/1.1`, authorization: 'X: without a key' },
      answer,
    ],
  ),
  ['OPTIONS for an unknown path', '9110 §9.3.7', { line: 'OPTIONS /v1/x HTTP/1.1' }, NOT_FOUND],
  ...['HTTP/2.0', 'HTTP/1.2'].map(
    (version): Row => [
      `“${version}” as its version`,
      '9110 §15.6.6',
      { line: `GET /v1/pets ${version}` },
      NO_SUCH_VERSION,
    ],
  ),
  ...['HTTP/1.1 ', 'HTTP/1.1x', 'HTTP/1.12', 'HTTP/1', 'HTTP/a.b', 'http/1.1'].map(
    (version): Row => [`“${version}” as its version`, '9112 §3', { line: `GET /v1/pets ${version}` }, NO_REQUEST],
  ),
  ['two spaces after Bearer', '6750 §2.1', { authorization: bearer('  ') }, OK, 'GET /v1/pets HTTP/1.1'],
  ['a tab after Bearer', '6750 §2.1', { authorization: bearer('\t') }, /^HTTP\/1.1 401 /],
])(
  'a request is answered as the standard requires: %s (RFC %s)',
  async ([, , { line = 'GET /v1/pets HTTP/1.1', host = 'a', authorization = bearer() }, answer, forwarded]) => {
    const before = core.heads.length;
    const head = [line, `Host: ${host}`, authorization, 'Connection: close', '', ''].join('\r\n');
    expect(await sendBytes(stack.gateway, head)).toMatch(answer);
    const heads = core.heads.slice(before).map((head) => head.split('\r\n', 1)[0]);
    expect(heads).toEqual(forwarded === undefined ? [] : [forwarded]);
  },
);

test('OPTIONS is charged to the address and refused when its allowance is used up', async () => {
  const { gateway } = await startStack();
  const statuses = [];
  for (let at = 0; at < 80; at++) statuses.push((await send(`${gateway}/v1/pets`, { method: 'OPTIONS' })).status);
  expect(new Set(statuses)).toEqual(new Set([204, 429]));
  // The allowance is 60, and refills by one a second.
  const served = statuses.indexOf(429);
  expect([served >= 60, served < 70]).toEqual([true, true]);
});

test('the admin listener accepts two spaces after Bearer', async () => {
  const headers = { authorization: 'Bearer  token-of-the-tests' };
  expect((await send(`${stack.adminUrl}/keys`, { headers })).status).toBe(200);
});
