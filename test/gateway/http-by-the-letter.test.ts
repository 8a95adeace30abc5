import { expect, test } from 'vitest';
import { listeningCore } from '../support/faulty-core.ts';
import { send, sendBytes } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

/** Requirements of the HTTP standards for a server, one per row. */

const core = await listeningCore();
const stack = await startStack({ CORE_URL: core.url });
const key = await stack.issueKey({ plan: 'enterprise', minute: 10_000, day: 10_000 });
const AUTHORIZED = `Authorization: Bearer ${key}`;

type Row = [what: string, rfc: string, head: string, answer: RegExp, forwarded?: string];

const ROWS: readonly Row[] = [
  [
    'the absolute form in capitals, with a port',
    '9110 §4.2.3',
    `GET HTTP://A:80/v1/pets HTTP/1.1\nHost: a:80\n${AUTHORIZED}`,
    /^HTTP\/1.1 200 /,
    'GET /v1/pets HTTP/1.1',
  ],
  [
    'the absolute form without a path',
    '9112 §3.2.1',
    `GET http://a?x HTTP/1.1\nHost: a\n${AUTHORIZED}`,
    /^HTTP\/1.1 404 /,
  ],
  [
    'a POST that announces no body',
    '9112 §6.3',
    `POST /v1/pets HTTP/1.1\nHost: a\n${AUTHORIZED}`,
    /^HTTP\/1.1 200 /,
    'POST /v1/pets HTTP/1.1',
  ],
  [
    'OPTIONS of a path',
    '9110 §9.3.7',
    'OPTIONS /v1/pets HTTP/1.1\nHost: a',
    /^HTTP\/1.1 204 [\s\S]*Allow: GET, HEAD, POST, OPTIONS\r\n/,
  ],
  [
    'OPTIONS of a path with a parameter',
    '9110 §9.3.7',
    'OPTIONS /v1/pets/1 HTTP/1.1\nHost: a',
    /^HTTP\/1.1 204 [\s\S]*Allow: GET, HEAD, OPTIONS\r\n/,
  ],
  [
    'OPTIONS *',
    '9110 §9.3.7',
    'OPTIONS * HTTP/1.1\nHost: a',
    /^HTTP\/1.1 204 [\s\S]*Allow: GET, HEAD, POST, OPTIONS\r\n/,
  ],
  ['OPTIONS of an unknown path', '9110 §9.3.7', `OPTIONS /v1/x HTTP/1.1\nHost: a\n${AUTHORIZED}`, /^HTTP\/1.1 404 /],
  [
    'HTTP/2.0 in the request line',
    '9110 §15.6.6',
    `GET /v1/pets HTTP/2.0\nHost: a\n${AUTHORIZED}`,
    /^HTTP\/1.1 505 [\s\S]*"code":"http_version_not_supported"/,
  ],
  ...['HTTP/1.1 ', 'HTTP/1.1x', 'HTTP/1.12', 'HTTP/1', 'HTTP/a.b', 'http/1.1'].map(
    (version): Row => [
      `${version}| in the request line`,
      '9112 §3',
      `GET /v1/pets ${version}\nHost: a\n${AUTHORIZED}`,
      /^HTTP\/1.1 400 [\s\S]*"code":"invalid_request"/,
    ],
  ),
  [
    'HTTP/1.2 in the request line',
    '9110 §15.6.6',
    `GET /v1/pets HTTP/1.2\nHost: a\n${AUTHORIZED}`,
    /^HTTP\/1.1 505 [\s\S]*"code":"http_version_not_supported"/,
  ],
  [
    'two spaces behind Bearer',
    '6750 §2.1',
    `GET /v1/pets HTTP/1.1\nHost: a\nAuthorization: Bearer  ${key}`,
    /^HTTP\/1.1 200 /,
    'GET /v1/pets HTTP/1.1',
  ],
  [
    'a tab behind Bearer',
    '6750 §2.1',
    `GET /v1/pets HTTP/1.1\nHost: a\nAuthorization: Bearer\t${key}`,
    /^HTTP\/1.1 401 /,
  ],
];

test.for(ROWS)('%s (RFC %s)', async ([, , head, answer, forwarded]) => {
  const before = core.heads.length;
  const bytes = `${head}\nConnection: close\n\n`.replaceAll('\n', '\r\n');
  expect(await sendBytes(stack.gateway, bytes)).toMatch(answer);
  expect(core.heads.slice(before).map((told) => told.split('\r\n', 1)[0])).toEqual(
    forwarded === undefined ? [] : [forwarded],
  );
});

test('OPTIONS is charged to the address and refused when its allowance is used up', async () => {
  const { gateway } = await startStack();
  const statuses = [];
  for (let at = 0; at < 62; at++) statuses.push((await send(`${gateway}/v1/pets`, { method: 'OPTIONS' })).status);
  expect([statuses.indexOf(429), statuses.lastIndexOf(204)]).toEqual([60, 59]);
});

test('the admin listener accepts two spaces after Bearer', async () => {
  const headers = { authorization: 'Bearer  token-of-the-tests' };
  expect((await send(`${stack.adminUrl}/keys`, { headers })).status).toBe(200);
});
