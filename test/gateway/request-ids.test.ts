import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { listeningCore, OK, okTo } from '../support/faulty-core.ts';
import { type Answer, post, send, sendBytes } from '../support/http.ts';
import { startStack, UNLIMITED } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';

/** Tests how a request can be found in logs: by its trace and by its id. */

const ID = '0af7651916cd43dd8448eb211c80319c';
const SPAN = 'b7ad6b7169203331';
const GIVEN = `00-${ID}-${SPAN}-01`;
const FORM = /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

const core = await listeningCore();
const { stack, get } = await stackBefore(core.url);
const ask = (headers: Record<string, string | string[]>): Promise<Answer> => get('', { headers });

/** Returns all values of a header in the last request to the core. */
function atCore(name: string): string[] {
  const lines = (core.heads.at(-1) ?? '').split('\r\n').map((line) => line.split(': ', 2));
  return lines.filter(([header = '']) => header.toLowerCase() === name).map(([, value = '']) => value);
}

/** Returns the parts of the only traceparent that the core received. */
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
  ['with unknown flags', `00-${ID}-${SPAN}-ff`, '03'],
  ['of a future version', `01-${ID}-${SPAN}-01`, '01'],
  ['of a future version with more fields', `cc-${ID}-${SPAN}-01-what-the-future-holds`, '01'],
] as const)('a trace reaches the core with the same id and a new parent id: %s', async ([, given, flags]) => {
  const { headers } = await ask({ traceparent: given, 'x-request-id': 'trace-test' });
  const there = traceAtCore();
  expect([there.id, there.flags]).toEqual([ID, flags]);
  expect(there.span).not.toBe(SPAN);
  expect(headers['x-request-id']).toBe('trace-test');
  expect(atCore('x-request-id')).toEqual([expect.stringMatching(/^trace-test\.\d+$/)]);
});

test.for([
  ['no traceparent', {}],
  ['an empty traceparent', { traceparent: '' }],
  ['an id of zeros', { traceparent: `00-${'0'.repeat(32)}-${SPAN}-01` }],
  ['a parent id of zeros', { traceparent: `00-${ID}-${'0'.repeat(16)}-01` }],
  ['the invalid version ff', { traceparent: `ff-${ID}-${SPAN}-01` }],
  ['more fields than its version has', { traceparent: `${GIVEN}-more` }],
  ['letters in upper case', { traceparent: GIVEN.toUpperCase() }],
  ['a short id', { traceparent: `00-${ID.slice(1)}-${SPAN}-01` }],
  ['a letter that is not a hexadecimal digit', { traceparent: `00-${ID.slice(1)}g-${SPAN}-01` }],
  ['a future version without a separator after its fields', { traceparent: `01-${ID}-${SPAN}-01more` }],
  ['two traceparents', { traceparent: [GIVEN, GIVEN] }],
  ['text without fields', { traceparent: 'GET / HTTP/1.1' }],
] as [string, Record<string, string | string[]>][])(
  'an invalid traceparent begins a new trace without its tracestate: %s',
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
  ['one header', 'congo=t61rcWkgMzE,rojo=00f067aa0ba902b7', ['congo=t61rcWkgMzE,rojo=00f067aa0ba902b7']],
  ['several headers', ['congo=t61rcWkgMzE', 'rojo=00f067aa0ba902b7'], ['congo=t61rcWkgMzE, rojo=00f067aa0ba902b7']],
  ['the maximum length', `a=${'x'.repeat(510)}`, [`a=${'x'.repeat(510)}`]],
  ['too many characters', `a=${'x'.repeat(511)}`, []],
  ['a character beyond ASCII', 'a=\u00e9', []],
] as [string, string | string[], string[]][])(
  'a tracestate is forwarded or dropped as a whole: %s',
  async ([, given, expected]) => {
    await ask({ traceparent: GIVEN, tracestate: given });
    expect([traceAtCore().id, atCore('tracestate')]).toEqual([ID, expected]);
  },
);

test('every request is logged with a trace id, whether it is answered, refused or malformed', async () => {
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

test('a retried request keeps its trace', async () => {
  const heads: string[] = [];
  const flaky = await stackBefore((socket, head) => {
    heads.push(head);
    if (heads.length === 1) socket.destroy();
    else socket.write(OK);
  });
  expect((await flaky.get('', { headers: { traceparent: GIVEN } })).status).toBe(200);
  expect(heads.map((head) => head.includes(`traceparent: 00-${ID}-`))).toEqual([true, true]);
  await flaky.post('', {}, { headers: { traceparent: GIVEN } });
  expect(heads.at(-1)).toContain(`traceparent: 00-${ID}-`);
});

/** Returns the X-Request-Id in the head of a request. */
const idIn = (head: string): string => /\r\nX-Request-Id: ([^\r]*)/i.exec(head)?.[1] ?? '';

test('the core receives a different id for each attempt of each request, even if clients repeat an id', async () => {
  const received: string[] = [];
  const { get } = await stackBefore((socket, head) => {
    received.push(idIn(head));
    // Every third attempt fails, so the gateway retries its read.
    if (received.length % 3 === 0) socket.destroy();
    else socket.write(okTo(head));
  });
  for (let at = 0; at < 10; at++) {
    const { status, headers } = await get('', { headers: { 'x-request-id': 'same.1' } });
    expect([status, headers['x-request-id']]).toEqual([200, 'same.1']);
  }
  expect(received.length).toBeGreaterThan(10);
  expect(new Set(received).size).toBe(received.length);
  expect(received.filter((id) => !/^same\.1\.\d+$/.test(id))).toEqual([]);
});

const NEW: string = expect.stringMatching(/^[0-9a-f-]{36}$/);
const whole = await startStack();
const ownKey = await whole.issueKey(UNLIMITED);

test.for<[what: string, given: string | undefined, expected: string]>([
  ['a short id', 'order-47.1_1', 'order-47.1_1'],
  ['the longest id', 'a'.repeat(64), 'a'.repeat(64)],
  ['an id that ends like the id of an attempt', 'a.7', 'a.7'],
  ['a new id', undefined, NEW],
  ['a new id for one that is too long', 'a'.repeat(65), NEW],
  ...['a b', '"', 'a;b'].map(
    (unfit) => [`a new id for one that is not safe to log, ${unfit}`, unfit, NEW] as [string, string, string],
  ),
])('one id finds a request in the logs of gateway and core: %s', async ([, given, expected]) => {
  const headers: Record<string, string> = given === undefined ? {} : { 'x-request-id': given };
  const pets = `${whole.gateway}/v1/pets`;
  for (const request of [
    () => send(pets, { key: ownKey, headers }),
    () => send(`${pets}/404404`, { key: ownKey, headers }),
    () => post(pets, { name: 'Rex', categoryId: 1 }, { key: ownKey, headers }),
  ]) {
    whole.log.length = 0;
    whole.coreLog.length = 0;
    const answer = await request();
    const id = String(answer.headers['x-request-id']);
    expect(id).toEqual(expected);
    expect(JSON.stringify(answer.headers) + answer.text).not.toMatch(new RegExp(`${id}\\.\\d{9}`));
    const found = (log: typeof whole.log) => log.filter(({ requestId }) => String(requestId).startsWith(id));
    const received = expect.stringMatching(new RegExp(`^${id}\\.\\d+$`));
    const { status } = answer;
    await expect.poll(() => found(whole.log)).toMatchObject([{ requestId: id, status }]);
    await expect.poll(() => found(whole.coreLog)).toMatchObject([{ requestId: received, status }]);
  }
});

test('the core keeps the id of a caller other than the gateway', async () => {
  const { headers } = await send(`${whole.core}/v1/pets`, { headers: { 'x-request-id': 'of-a-service' } });
  expect(headers['x-request-id']).toBe('of-a-service');
  await expect.poll(() => whole.coreLog.map(({ requestId }) => requestId)).toContain('of-a-service');
});

test('two processes never give attempts the same id', () => {
  const module = new URL('../../gateway/upstream/headers.ts', import.meta.url).href;
  const print = `import('${module}').then(({ attemptIdOf }) => console.log([1, 2].map(() => attemptIdOf('same')).join()))`;
  const received = Array.from({ length: 2 }, () => execFileSync(process.execPath, ['-e', print], { encoding: 'utf8' }));
  const ids = received.flatMap((line) => line.trim().split(','));
  expect(new Set(ids).size).toBe(4);
  for (const id of ids) expect(id).toMatch(/^same\.\d{9}[12]$/);
});
