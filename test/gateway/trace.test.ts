import { DatabaseSync } from 'node:sqlite';
import { expect, test } from 'vitest';
import { traceHeaders, traceOf } from '../../shared/http/request-head.ts';
import { faultyCore, listeningCore } from '../support/faulty-core.ts';
import { type Answer, post, send, sendBytes } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const ID = '0af7651916cd43dd8448eb211c80319c';
const SPAN = 'b7ad6b7169203331';
const GIVEN = `00-${ID}-${SPAN}-01`;
const FORM = /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

const core = await listeningCore();
const stack = await startStack({ CORE_URL: core.url });
const key = await stack.issueKey({ plan: 'enterprise', minute: 100_000, day: 100_000 });
const ask = (headers: Record<string, string | string[]>): Promise<Answer> =>
  send(`${stack.gateway}/v1/pets`, { key, headers });

/** All values of a header in the last request to the core. */
function atCore(name: string): string[] {
  const lines = (core.heads.at(-1) ?? '').split('\r\n').map((line) => line.split(': ', 2));
  return lines.filter(([header = '']) => header.toLowerCase() === name).map(([, value = '']) => value);
}

/** The parts of the one traceparent that the core received. */
function traceAtCore(): { readonly id: string; readonly span: string; readonly flags: string } {
  const values = atCore('traceparent');
  expect(values).toEqual([expect.stringMatching(FORM)]);
  const [, id = '', span = '', flags = ''] = values[0]?.split('-') ?? [];
  return { id, span, flags };
}

const logged = (requestId: string) =>
  expect.poll(() => stack.log.find((line) => line.requestId === requestId)?.traceId);

test.for([
  ['sampled', GIVEN, '01'],
  ['not sampled', `00-${ID}-${SPAN}-00`, '00'],
  ['with a flag that means nothing yet', `00-${ID}-${SPAN}-ff`, '03'],
  ['of a version to come', `01-${ID}-${SPAN}-01`, '01'],
  ['of a version to come that says more', `cc-${ID}-${SPAN}-01-what-the-future-holds`, '01'],
] as const)('a trace that is %s reaches the core with the same id and a new parent id', async ([, given, flags]) => {
  const { headers } = await ask({ traceparent: given, 'x-request-id': 'trace-test' });
  const there = traceAtCore();
  expect([there.id, there.flags]).toEqual([ID, flags]);
  expect(there.span).not.toBe(SPAN);
  expect(headers['x-request-id']).toBe('trace-test');
  expect(atCore('x-request-id')).toEqual([expect.stringMatching(/^trace-test\.\d+$/)]);
});

test.for([
  ['none', {}],
  ['an empty one', { traceparent: '' }],
  ['an id of zeros', { traceparent: `00-${'0'.repeat(32)}-${SPAN}-01` }],
  ['a caller of zeros', { traceparent: `00-${ID}-${'0'.repeat(16)}-01` }],
  ['the version that there is not', { traceparent: `ff-${ID}-${SPAN}-01` }],
  ['more than its version has', { traceparent: `${GIVEN}-more` }],
  ['upper case', { traceparent: GIVEN.toUpperCase() }],
  ['a short id', { traceparent: `00-${ID.slice(1)}-${SPAN}-01` }],
  ['a letter that is no digit', { traceparent: `00-${ID.slice(1)}g-${SPAN}-01` }],
  ['a version to come with something stuck to it', { traceparent: `01-${ID}-${SPAN}-01more` }],
  ['two of them', { traceparent: [GIVEN, GIVEN] }],
  ['a text', { traceparent: 'GET / HTTP/1.1' }],
] as [string, Record<string, string | string[]>][])(
  'with %s a new trace begins, and tracestate is dropped',
  async ([, headers]) => {
    await ask({ ...headers, tracestate: 'vendor=opaque' });
    const first = traceAtCore();
    expect(first.id).not.toBe(ID);
    expect([first.flags, atCore('tracestate')]).toEqual(['00', []]);
    await ask({ ...headers, tracestate: 'vendor=opaque' });
    const second = traceAtCore();
    expect(second.id).not.toBe(first.id);
    expect(second.span).not.toBe(first.span);
  },
);

test.for([
  ['one', 'congo=t61rcWkgMzE,rojo=00f067aa0ba902b7', ['congo=t61rcWkgMzE,rojo=00f067aa0ba902b7']],
  ['several', ['congo=t61rcWkgMzE', 'rojo=00f067aa0ba902b7'], ['congo=t61rcWkgMzE, rojo=00f067aa0ba902b7']],
  ['the longest', `a=${'x'.repeat(510)}`, [`a=${'x'.repeat(510)}`]],
  ['one that is too long', `a=${'x'.repeat(511)}`, []],
  ['one that is no text', 'a=\u00e9', []],
] as [string, string | string[], string[]][])(
  'of tracestate, %s is passed on correctly',
  async ([, given, expected]) => {
    await ask({ traceparent: GIVEN, tracestate: given });
    expect([traceAtCore().id, atCore('tracestate')]).toEqual([ID, expected]);
  },
);

test('the trace id is in the log line of every request: refused, answered or broken', async () => {
  await ask({ traceparent: GIVEN, 'x-request-id': 'answered' });
  await logged('answered').toBe(ID);
  await send(`${stack.gateway}/v1/pets`, { headers: { traceparent: GIVEN, 'x-request-id': 'refused' } });
  await logged('refused').toBe(ID);
  await ask({ 'x-request-id': 'begun' });
  const { id } = traceAtCore();
  await logged('begun').toBe(id);
  await sendBytes(stack.gateway, 'GARBAGE\r\n\r\n');
  await expect
    .poll(() => stack.log.filter(({ msg, reason }) => msg === 'request' && reason !== undefined))
    .toEqual([expect.objectContaining({ traceId: expect.stringMatching(/^[0-9a-f]{32}$/) })]);
  const lines = stack.log.filter(({ msg }) => msg === 'request');
  expect(lines.filter(({ traceId }) => !/^[0-9a-f]{32}$/.test(String(traceId)))).toEqual([]);
});

test('the core logs the trace that the gateway forwarded', async () => {
  const whole = await startStack();
  const database = new DatabaseSync(`${whole.directory}/store.db`);
  database.exec('DROP TABLE orders');
  database.close();
  const owner = await whole.issueKey();
  const headers = { traceparent: GIVEN, 'x-request-id': 'failing' };
  expect((await send(`${whole.gateway}/v1/store/orders`, { key: owner, headers })).status).toBe(500);
  const failed = whole.coreLog.filter(({ level }) => level === 50);
  expect(failed).toEqual([
    expect.objectContaining({ requestId: expect.stringMatching(/^failing\.[0-9a-z]+$/), traceId: ID }),
  ]);
});

test('a retried request keeps its trace', async () => {
  const heads: string[] = [];
  const flaky = await faultyCore((socket, head) => {
    heads.push(head);
    if (heads.length === 1) socket.destroy();
    else socket.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]');
  });
  const other = await startStack({ CORE_URL: flaky });
  const owner = await other.issueKey();
  expect((await send(`${other.gateway}/v1/pets`, { key: owner, headers: { traceparent: GIVEN } })).status).toBe(200);
  expect(heads.map((head) => head.includes(`traceparent: 00-${ID}-`))).toEqual([true, true]);
  await post(`${other.gateway}/v1/pets`, {}, { key: owner, headers: { traceparent: GIVEN } });
  expect(heads.at(-1)).toContain(`traceparent: 00-${ID}-`);
});

test('ten thousand new traces have different ids', () => {
  const request = { headers: {} } as Parameters<typeof traceOf>[0];
  const begun = Array.from({ length: 10_000 }, () => traceOf(request));
  expect(begun.filter(({ id }) => !/^[0-9a-f]{32}$/.test(id))).toEqual([]);
  expect(new Set(begun.map(({ id }) => id)).size).toBe(10_000);
  const callers = begun.map((trace) => traceHeaders(trace)[1] ?? '');
  expect(callers.filter((value) => !FORM.test(value))).toEqual([]);
  expect(new Set(callers.map((value) => value.split('-')[2])).size).toBe(10_000);
});
