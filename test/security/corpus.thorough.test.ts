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

/** An optional interim answer, then a success or an error in the Error shape, always with the limit headers. */
const ANSWER =
  /^(?:HTTP\/1\.1 100 Continue\r\n\r\n)?HTTP\/1\.1 (?:200 OK|204 No Content|4\d\d [\w ]+|505 HTTP Version Not Supported)\r\n(?=[\s\S]*X-RateLimit-Limit: \d+\r\n)[\s\S]*\r\n\r\n(?:$|\[\]|\{"code":"\w+","message":"[^"]+","status":(?:4\d\d|505)\})/;
