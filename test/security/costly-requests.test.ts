import { expect, test } from 'vitest';
import { usageOf } from '../bench/machine/usage.ts';
import { send, sendBytes } from '../support/http.ts';
import { fact, TIMED } from '../support/timed.ts';
import { launchWorkers } from '../support/workers.ts';

/** Input designed to be expensive must not cost much more than an ordinary request, whether refused or answered. */

const { child, gateway, issueKey } = await launchWorkers({
  WORKERS: '1',
  REDIS_URL: '',
  TRUSTED_PROXIES: '127.0.0.1,10.0.0.0/8,fd00::/8',
  LOG_LEVEL: 'warn',
});
const key = await issueKey();

type Headers = Record<string, string | string[]>;
const lines = (count: number, name: (at: number) => string): Headers =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [name(at), 'a']));
const ask = (path: string, headers: Headers) => send(gateway + path, { key, headers });

const INPUTS: readonly [name: string, status: number, headers: Headers, path?: string][] = [
  ['100 header lines', 200, lines(96, (at) => `x-${at}`)],
  ['101 header lines', 431, lines(98, (at) => `x-${at}`)],
  ['994 header lines', 431, lines(994, (at) => `x-${at}`)],
  ['3,000 header lines', 431, lines(3_000, (at) => `x${at}`)],
  ['16 Connection options', 200, { connection: Array.from({ length: 16 }, (_, at) => `o${at}`) }],
  ['17 Connection options', 400, { connection: Array.from({ length: 17 }, (_, at) => `o${at}`) }],
  ['17 Connection options in one line', 400, { connection: Array.from({ length: 17 }, (_, at) => `o${at}`).join() }],
  ['90 Connection lines', 400, { connection: Array.from({ length: 90 }, (_, at) => `option-${at}`) }],
  ['8,000 empty Connection options', 400, { connection: ','.repeat(8_000) }],
  ['an X-Forwarded-For of 1,700 proxies', 200, { 'x-forwarded-for': `${'10.0.0.1,'.repeat(1_700)}10.0.0.1` }],
  ['an X-Forwarded-For of commas', 200, { 'x-forwarded-for': ','.repeat(15_000) }],
  [
    'a long tracestate',
    200,
    { traceparent: `00-${'1'.repeat(32)}-${'1'.repeat(16)}-01`, tracestate: 'a='.repeat(7_000) },
  ],
  ['a long traceparent', 200, { traceparent: `cc-${'1'.repeat(32)}-${'1'.repeat(16)}-01-${'-'.repeat(14_000)}` }],
  ['a cookie of 15 kB', 200, { cookie: 'a=b; '.repeat(3_000) }],
  ['a bearer token of 15 kB', 401, { authorization: `Bearer ${'as_'.repeat(5_000)}` }],
  ['15 kB of spaces after Bearer', 401, { authorization: `Bearer${' '.repeat(15_000)}\u00e9` }],
  ['a target of 8 kB of key prefixes', 404, {}, `/v1/${'as_'.repeat(2_700)}`],
  ['a target of 8 kB of encoded letters', 404, {}, `/v1/${'%61%73'.repeat(1_350)}`],
  ['a target of 8 kB of dots', 404, {}, `/v1/${'...'.repeat(2_700)}`],
  ['a target of 4,000 segments', 404, {}, '/a'.repeat(4_000)],
  ['a target of escapes, the last one incomplete', 400, {}, `/v1/${'%41'.repeat(2_700)}%`],
  ['4,000 parameters', 200, {}, `/v1/pets?${'a&'.repeat(4_000)}`],
  ['a Host of 15 kB', 400, { host: 'a.'.repeat(7_500) }],
  ['an If-None-Match of commas', 200, { 'if-none-match': ','.repeat(15_000) }, '/v1/openapi.json'],
  ['an Accept-Encoding of gzip;q=0', 200, { 'accept-encoding': 'gzip;q=0,'.repeat(1_600) }, '/v1/openapi.json'],
];

/** Only the cheapest group counts, because other work of the process or the machine adds cost to the others. */
const GROUPS = 5;
const REQUESTS = 8;
/** The maximum cost beyond that of an ordinary request. */
const MOST_MICROSECONDS = 1_000;

async function costOf(path: string, headers: Headers): Promise<{ microseconds: number; statuses: Set<number> }> {
  const used = () => usageOf(child.pid as number).cpuMicroseconds;
  const statuses = new Set<number>();
  let least = Number.POSITIVE_INFINITY;
  for (let group = 0; group < GROUPS; group++) {
    const before = used();
    for (let sent = 0; sent < REQUESTS; sent++) statuses.add((await ask(path, headers)).status);
    least = Math.min(least, (used() - before) / REQUESTS);
  }
  return { microseconds: least, statuses };
}

for (let round = 0; round < 10; round++) await costOf('/v1/pets', {});
const ordinary = await costOf('/v1/pets', {});
const specification = await costOf('/v1/openapi.json', {});

let address = 0;

test.for(INPUTS)(
  'a request with %s takes less than an extra millisecond of CPU time and gets %i',
  TIMED,
  async ([, status, headers, path = '/v1/pets']) => {
    // Each input has its own address, so that no allowance is used up.
    const own = { 'x-forwarded-for': `192.0.2.${++address}` };
    const plain = path === '/v1/openapi.json' ? specification : ordinary;
    const { microseconds, statuses } = await costOf(path, { ...own, ...headers });
    await fact(() => expect([...statuses]).toEqual([status]));
    expect(microseconds - plain.microseconds).toBeLessThan(MOST_MICROSECONDS);
  },
);

test('a request is refused if Node drops one of its header lines', async () => {
  for (const count of [90, 150, 250, 1_100, 2_500]) {
    const filling = Array.from({ length: count }, () => 'a: b\r\n').join('');
    const head = `GET /v1/pets HTTP/1.1\r\nAuthorization: Bearer ${key}\r\nHost: a\r\n${filling}Host: b\r\n\r\n`;
    expect(await sendBytes(gateway, head)).toMatch(/^HTTP\/1.1 4(?:00|31) /);
  }
});
