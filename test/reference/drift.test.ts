import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { knowServices } from '../support/described-answers.ts';
import { send, sendBytes } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { startStack } from '../support/stack.ts';

/** Tests the check that compares answers in tests with the description. It must detect every kind of drift. */

const LIMITS = { 'x-ratelimit-limit': '60', 'x-ratelimit-remaining': '59', 'x-ratelimit-reset': '1795262400' };
const LIMITS_AND_ID = { ...LIMITS, 'x-request-id': 'r1' };
const PAGE = {
  status: 200,
  headers: { ...LIMITS_AND_ID, 'content-type': 'application/json' } as Record<string, string>,
  body: '[{"id":9223372036854775807,"name":"Rex","categoryId":1,"status":"sold"}]',
};
type Given = typeof PAGE;
const REFUSAL: Given = {
  ...PAGE,
  status: 429,
  headers: { ...PAGE.headers, 'retry-after': '2' },
  body: '{"code":"key_banned","message":"Wait.","status":429}',
};
const PET: Given = {
  ...PAGE,
  headers: {
    ...PAGE.headers,
    deprecation: '@1795132800',
    sunset: 'Thu, 05 Dec 2030 00:00:00 GMT',
    link: '</v1/pets>; rel="successor-version"',
  },
  body: '{"id":1,"name":"Rex","categoryId":1,"status":"sold"}',
};

/** A server that imitates a gateway with our core. */
async function gatewayThatAnswers(given: Given): Promise<string> {
  const url = await serveHttp((_request, response) => {
    const length = { 'content-length': Buffer.byteLength(given.body) };
    response.writeHead(given.status, { ...given.headers, ...length }).end(given.body);
  });
  cleanUp(knowServices({ core: 'http://core', gateway: url }, 'http://core'));
  return url;
}

test.for<[what: string, path: string, given: Given]>([
  ['a page', '/v1/pets?limit=1', PAGE],
  ['a refusal', '/v1/pets', REFUSAL],
  ['a deprecated operation', '/v1/pets/1', PET],
])('%s that matches the description passes', async ([, path, given]) => {
  const url = await gatewayThatAnswers(given);
  expect((await send(url + path)).status).toBe(given.status);
});

function without(given: Given, name: string): Given {
  const { [name]: _dropped, ...headers } = given.headers;
  return { ...given, headers };
}

const withHeader = (given: Given, name: string, value: string): Given => {
  return { ...given, headers: { ...given.headers, [name]: value } };
};

test.for<[what: string, path: string, given: Given, fault: RegExp]>([
  ['a missing limit header', '/v1/pets', without(PAGE, 'x-ratelimit-reset'), /X-RateLimit-Reset is missing/],
  ['a missing request id', '/nowhere', without(PAGE, 'x-request-id'), /no such status/],
  ['a missing Retry-After', '/v1/pets', without(REFUSAL, 'retry-after'), /Retry-After is missing/],
  ['a Retry-After that is not a number', '/v1/pets', withHeader(REFUSAL, 'retry-after', 'soon'), /retry-after is soon/],
  ['a limit given twice', '/v1/pets', withHeader(PAGE, 'x-ratelimit-limit', '60, 60'), /x-ratelimit-limit is 60, 60/],
  ['an undescribed header', '/v1/pets', withHeader(PAGE, 'x-new', '1'), /x-new is not described/],
  ['a missing sunset', '/v1/pets/1', without(PET, 'sunset'), /Sunset is missing/],
  ['an unexpected deprecation', '/v1/pets', { ...PET, body: '[]' }, /deprecation is not described/],
  ['an undescribed status', '/v1/pets', { ...PAGE, status: 418 }, /no such status/],
  ['a success on an unknown path', '/v2/pets', PAGE, /no such status/],
  [
    'an additional member',
    '/v1/pets/1',
    { ...PET, body: `${PET.body.slice(0, -1)},"age":1}` },
    /additional properties/,
  ],
  ['a missing member', '/v1/pets', { ...PAGE, body: '[{"id":1,"categoryId":1}]' }, /must have required property/],
  ['no body', '/v1/pets', { ...PAGE, body: '' }, /not JSON/],
  ['a page in a wrapper', '/v1/pets', { ...PAGE, body: '{"pets":[]}' }, /must be array/],
  ['an unknown code', '/v1/pets', { ...REFUSAL, body: REFUSAL.body.replace('key_banned', 'slow') }, /allowed values/],
  [
    'a code of another status',
    '/v1/pets',
    { ...REFUSAL, body: REFUSAL.body.replace('key_banned', 'conflict') },
    /allowed/,
  ],
  ['another content type', '/v1/pets', withHeader(PAGE, 'content-type', 'text/plain'), /type is text\/plain/],
])('the check of answers detects %s', async ([, path, given, fault]) => {
  const url = await gatewayThatAnswers(given);
  await expect(send(url + path)).rejects.toThrow(fault);
  await expect(send(url + path)).rejects.toThrow('is not as described');
});

test('answers on a raw connection are checked too', async () => {
  const bytes = 'GET /v1/pets HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n';
  expect(await sendBytes(await gatewayThatAnswers(REFUSAL), bytes)).toContain('HTTP/1.1 429');
  const bad = await gatewayThatAnswers(without(REFUSAL, 'retry-after'));
  await expect(sendBytes(bad, bytes)).rejects.toThrow(/Retry-After is missing/);
});

test("another server on the port of a stopped core is not checked against the core's description", async () => {
  const stack = await startStack();
  const gateway = await serveHttp((_request, response) => void response.writeHead(200, LIMITS_AND_ID).end('[]'));
  cleanUp(knowServices({ gateway }, stack.core));
  await expect(send(`${gateway}/v1/pets`)).rejects.toThrow('the content type is undefined');
  await stack.stop();
  expect((await send(`${gateway}/v1/pets`)).text).toBe('[]');
});
