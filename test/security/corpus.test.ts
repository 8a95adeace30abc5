import { expect, test } from 'vitest';
import { startStack, UNLIMITED } from '../support/stack.ts';
import { judge } from './core-bytes.ts';
import { CORPUS, METHODS, streamsOf } from './corpus/corpus.ts';
import { play } from './play.ts';
import { recordingCore } from './recording-core.ts';

test('the corpus is large, and all of its cases differ', () => {
  expect(CORPUS.length).toBeGreaterThanOrEqual(300);
  expect(new Set(CORPUS.map(({ name }) => name)).size).toBe(CORPUS.length);
  expect(new Set(CORPUS.map(({ writes, cut }) => [cut, ...writes].join('|'))).size).toBe(CORPUS.length);
});

test('of all hostile byte streams, the core receives exactly the admitted requests', async () => {
  const core = await recordingCore();
  const stack = await startStack({ CORE_URL: core.url });
  const answers = await play(stack.gateway, streamsOf(CORPUS, await stack.issueKey(UNLIMITED)));
  expect(answers.size).toBe(CORPUS.length * METHODS.length);

  const requests = stack.log.filter(({ msg }) => msg === 'request');
  const decided = requests.filter(({ outcome }) => outcome === 'admitted');
  const received = core.received();
  const { faults, requests: forwarded } = judge(
    received,
    decided.map(({ requestId, method, path }) => `${requestId} ${method} ${path}`),
  );
  expect(faults).toEqual([]);
  expect(received.join('')).not.toMatch(/admin|6\.6\.6\.6|evil/);
  // The core received all answered requests. It may also have received requests from clients that had disconnected.
  const withStatus = (wanted: number) => decided.filter(({ status }) => status === wanted).length;
  expect(forwarded).toBeGreaterThanOrEqual(withStatus(200));
  expect(forwarded).toBeLessThanOrEqual(withStatus(200) + withStatus(499));
  // The corpus must contain requests that are forwarded, and many more that are refused.
  expect(forwarded).toBeGreaterThan(100);
  expect(requests.length - decided.length).toBeGreaterThan(3_000);
  // A 505 is the client's fault.
  expect(requests.filter(({ status }) => Number(status) >= 500 && status !== 505)).toEqual([]);
  // The client may disconnect before it gets the answer.
  const begun = ['', 'HTTP/1.1 100 Continue\r\n\r\n'];
  expect([...answers.values()].filter((answer) => !begun.includes(answer) && !ANSWER.test(answer))).toEqual([]);
});

/** An optional interim answer, then a success or an error in the Error shape, always with limits. */
const ANSWER =
  /^(?:HTTP\/1\.1 100 Continue\r\n\r\n)?HTTP\/1\.1 (?:200 OK|204 No Content|4\d\d [\w ]+|505 HTTP Version Not Supported)\r\n(?=[\s\S]*X-RateLimit-Limit: \d+\r\n)[\s\S]*\r\n\r\n(?:$|\[\]|\{"code":"\w+","message":"[^"]+","status":(?:4\d\d|505)\})/;

const LINE = 'GET /v1/pets HTTP/1.1';
const OF_GATEWAY = 'x-caller-id: k|x-forwarded-for: c|x-forwarded-host: a|traceparent: t|x-request-id: 1'.split('|');

/** A request as the gateway may forward it, with other headers if given. */
const request = (target = '/v1/pets', ...headers: readonly string[]): string =>
  [`GET ${target} HTTP/1.1`, 'host: a', 'connection: keep-alive', ...OF_GATEWAY, ...headers, '', ''].join('\r\n');
const decidedOnce = ['1 GET /v1/pets'];

test.for([
  ['a request twice', request().repeat(2), 'not admitted: 1 GET /v1/pets'],
  ['another path', request('/v1/pets/1'), 'not admitted: 1 GET /v1/pets/1'],
  ['a path that is not canonical', request('/v1/x/../pets'), 'not canonical: "GET /v1/x/../pets HTTP/1.1"'],
  ['bytes after a request', `${request()}abc`, 'no request: "abc"'],
  ['a body', `${request('/v1/pets', 'content-length: 1')}a`, `a body in a ${LINE}`],
  ['chunks', request('/v1/pets', 'transfer-encoding: chunked'), `a header that must not be forwarded: ${LINE}`],
  [
    'a different Connection header',
    request().replace('keep-alive', 'close'),
    `a Connection header other than the gateway's: ${LINE}`,
  ],
  ['two hosts', request('/v1/pets', 'host: b'), `host more than once: ${LINE}`],
  ['a missing gateway header', request().replace('traceparent: t\r\n', ''), `a missing gateway header: ${LINE}`],
] as const)('the corpus check detects that the core received %s', ([, bytes, fault]) => {
  expect(judge([bytes], decidedOnce).faults).toContain(fault);
});

test('the corpus check accepts an admitted request', () => {
  expect(judge([request('/v1/pets?limit=1')], decidedOnce)).toEqual({ requests: 1, faults: [] });
});
