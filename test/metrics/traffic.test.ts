import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { DoctorAnswer, TrafficAnswer } from '../../gateway/operators/api/answers.ts';
import { checkFailures } from '../../gateway/operators/api/traffic.ts';
import type { KeysOfMinute } from '../../gateway/telemetry/key-watch.ts';
import { quantile, WatchedTraffic } from '../../gateway/telemetry/state.ts';
import { idOf } from '../support/api-key.ts';
import { post, send } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack, UNLIMITED } from '../support/stack.ts';

const { url: REDIS_URL, redis } = await emptyDatabase();

const NOTHING = { admitted: 0, refused: 0, banned: 0, forbidden: 0, unauthorized: 0, shed: 0, undecided: 0, local: 0 };

const trafficOf = async (stack: Stack) => (await stack.admin('GET', '/traffic')).json as TrafficAnswer;

const eventually = (stack: Stack, read: (traffic: TrafficAnswer) => unknown) =>
  expect.poll(async () => read(await trafficOf(stack)));

describe.for(bothStacks(REDIS_URL))('with %s', async ([, environment]) => {
  test('GET /traffic returns the totals since the start by outcome and plan, and the state of the plans', async () => {
    const begun = Date.now();
    const stack = await startStack(environment);
    const fresh = await trafficOf(stack);
    expect(fresh).toMatchObject({ mode: 'shared', totals: NOTHING, plans: {} });
    expect(Date.parse(fresh.since)).toBeGreaterThanOrEqual(begun);
    const { headers } = await stack.admin('GET', '/plans');
    expect(`"${fresh.planTable.version}"`).toBe(headers.etag);

    const pro = await stack.issueKey({ plan: 'pro' });
    const scarce = await stack.issueKey({ plan: 'free', minute: 1_000, day: 1 });
    for (const key of [pro, pro, pro, scarce, scarce, `${scarce}x`, undefined])
      await send(`${stack.gateway}/v1/pets`, { key });
    const { json } = await stack.admin('POST', `/keys/${idOf(pro)}/secrets`, { name: 'reader', scope: ['read'] });
    await post(`${stack.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key: (json as { key: string }).key });
    await stack.admin('PUT', `/keys/${idOf(pro)}/ban`, { seconds: 60 });
    await send(`${stack.gateway}/v1/pets`, { key: pro });
    await eventually(stack, ({ totals, plans }) => ({ totals, plans })).toEqual({
      totals: { ...NOTHING, admitted: 4, refused: 1, banned: 1, forbidden: 1, unauthorized: 2 },
      plans: {
        pro: { admitted: 3, banned: 1, forbidden: 1 },
        free: { admitted: 1, refused_day: 1 },
        none: { malformed: 2 },
      },
    });
    await stack.admin('PATCH', '/plans/free', { minute: 61 });
    const changed = (await trafficOf(stack)).planTable;
    expect(changed.version).not.toBe(fresh.planTable.version);
    expect(Date.parse(changed.changedAt)).toBeGreaterThanOrEqual(Date.parse(fresh.planTable.changedAt));
  });
});

test('GET /traffic returns rejected plan values, however many and however long they are', async () => {
  await redis.flushdb();
  const stack = await startStack({ REDIS_URL, REDIS_TIMEOUT_MS: '5000' });
  await redis.hset('gateway:plans', 'free.minute', 'x'.repeat(10_000));
  await eventually(stack, ({ planTable }) => planTable.rejected).toEqual([
    { field: 'free.minute', value: 'x'.repeat(100), kept: 60 },
  ]);
  const unknown = Array.from({ length: 500 }, (_, at) => [`made.up.${at}.${'y'.repeat(200)}`, '1']);
  await redis.hset('gateway:plans', Object.fromEntries(unknown));
  await eventually(stack, ({ planTable }) => planTable.rejectedValues).toBe(501);
  const { rejected } = (await trafficOf(stack)).planTable;
  expect(rejected).toHaveLength(100);
  expect(Math.max(...rejected.map(({ field }) => field.length))).toBe(100);
});

const MINUTE_MS = 60_000;
const START = Date.parse('2026-11-20T12:00:00Z');

type Minutes = { readonly at: string; readonly admitted: number; readonly p50: number | null }[];

/** Starts a stack whose clock the test controls. */
async function minutesOf(settings: Record<string, string> = {}) {
  vi.useFakeTimers({ toFake: ['Date'], now: START });
  onTestFinished(() => void vi.useRealTimers());
  const stack = await startStack(settings);
  const key = await stack.issueKey({ plan: 'pro' });
  return {
    stack,
    moveTo: (minute: number) => vi.setSystemTime(START + minute * MINUTE_MS),
    ask: () => send(`${stack.gateway}/v1/pets`, { key }),
    reports: async () => ((await stack.admin('GET', '/traffic/minutes')).json as { minutes: Minutes }).minutes,
  };
}

test('each minute has its own counts, and the last hour is kept', async () => {
  const { moveTo, ask, reports } = await minutesOf();
  for (let minute = 0; minute < 100; minute++) {
    moveTo(minute);
    await reports();
    for (let request = 0; request < minute % 3; request++) await ask();
  }
  const minutes = await reports();
  expect(minutes.map(({ admitted }) => admitted)).toEqual(Array.from({ length: 61 }, (_, at) => (39 + at) % 3));
  expect(minutes.map(({ p50 }) => p50 === null)).toEqual(minutes.map(({ admitted }) => admitted === 0));
  expect([minutes[0]?.at, minutes.at(-1)?.at]).toEqual(['2026-11-20T12:39:00.000Z', '2026-11-20T13:39:00.000Z']);
});

test('after the clock is set back, no minute is listed twice', async () => {
  const { moveTo, ask, reports } = await minutesOf();
  for (const minute of [0, 1, 2, 3, 1, 2]) {
    moveTo(minute);
    await reports();
    await ask();
  }
  expect((await reports()).map(({ at, admitted }) => [at.slice(11, 16), admitted])).toEqual([
    ['12:00', 1],
    ['12:01', 1],
    ['12:02', 1],
  ]);
});

test('the doctor, the console and /readyz report that many requests get a 5xx, until they no longer do', async () => {
  let status = 200;
  const CORE_URL = await serveHttp(({ url }, response) => {
    const isPets = url === '/v1/pets?limit=1';
    const body = JSON.stringify({
      code: status === 500 ? 'internal_error' : 'unavailable',
      message: 'A test.',
      status,
    });
    response.writeHead(isPets ? status : 200, { 'content-type': 'application/json' }).end(body);
  });
  const { stack, moveTo } = await minutesOf({ CORE_URL });
  const key = await stack.issueKey(UNLIMITED);
  const about = 'requests to this gateway';
  const ask = async (count: number, next: number) => {
    status = next;
    for (let sent = 0; sent < count; sent++)
      expect((await send(`${stack.gateway}/v1/pets?limit=1`, { key })).status).toBe(next);
  };
  const reported = async () => {
    const { findings } = (await stack.admin('GET', '/doctor')).json as DoctorAnswer;
    return findings.filter((one) => one.about === about).map((one) => `${one.status} ${one.found}`);
  };
  moveTo(0.25);
  expect(await reported()).toEqual(['good 0 of 0 in the last 15 s got 5xx']);
  await ask(8, 503);
  await ask(1, 500);
  await ask(3, 200);
  await expect.poll(reported).toEqual(['good 9 of 12 in the last 15 s got 5xx']);
  await ask(1, 500);
  const found = '10 of 13 in the last 15 s got 5xx: 8 × 503, 2 × 500';
  await expect.poll(reported).toEqual([`fault ${found}`]);
  await expect.poll(async () => (await trafficOf(stack)).findings).toMatchObject([{ about, found }]);
  const detail = async () => ((await send(`${stack.adminUrl}/readyz`)).json as { detail?: string }).detail;
  await expect.poll(detail).toMatch(`${about} ${found} (fault since `);

  moveTo(1.5);
  expect(await reported()).toEqual([`fault ${found.replace('15 s', '90 s')}`]);
  moveTo(2);
  expect(await reported()).toEqual(['good 0 of 0 in the last 30 s got 5xx']);
});

test.for([
  ['good', { 200: 490, 503: 10 }],
  ['fault', { 200: 489, 503: 10 }],
  ['good', { 500: 4, 502: 5 }],
  ['fault', { 500: 5, 502: 5 }],
  // Clients cause these.
  ['good', { 429: 100, 499: 100, 505: 100, other: 100 }],
] as const)('requests to a gateway are %s if the number of responses by status is %j', ([status, statuses]) => {
  const found = checkFailures({ seconds: 60, statuses: new Map(Object.entries(statuses)) });
  expect(found).toMatchObject([{ status }]);
});

test('a key banned in several processes is counted once, even if a process reports it late', () => {
  vi.useFakeTimers({ now: START });
  onTestFinished(() => void vi.useRealTimers());
  const [reported, minute] = [[] as KeysOfMinute[], START / MINUTE_MS];
  const source = { counted: () => [], isLocal: () => false, processes: () => [] };
  const traffic = new WatchedTraffic({ ...source, banned: () => reported });
  reported.push({ minute, ids: ['a', 'b'] }, { minute, ids: ['b', 'c'] });
  expect(traffic.minutes().map(({ bannedKeys }) => bannedKeys)).toEqual([3]);
  vi.advanceTimersByTime(MINUTE_MS);
  reported.push({ minute, ids: ['d'] });
  expect(traffic.minutes().map(({ bannedKeys }) => bannedKeys)).toEqual([4, 0]);
  traffic.stop();
});

const BUCKETS = [
  [0.1, 10],
  [0.2, 20],
  [Infinity, 20],
] as const;

test.for([
  [[], 0.5, null],
  [
    [
      [0.1, 0],
      [Infinity, 0],
    ],
    0.5,
    null,
  ],
  [BUCKETS, 0.5, 100],
  [BUCKETS, 0.75, 150],
  [
    [
      [0.1, 10],
      [Infinity, 20],
    ],
    0.99,
    100,
  ],
] as const)('quantiles are computed as in Prometheus: for %j, the quantile %d is %d', ([buckets, share, expected]) => {
  expect(quantile(buckets, share)).toBe(expected);
});

test('the admin API returns the minutes of this gateway and the usage of a key', async () => {
  const stack = await startStack();
  const key = await stack.issueKey({ minute: 2, day: 10 });
  for (let sent = 0; sent < 3; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  const banned = await stack.issueKey();
  await stack.admin('PUT', `/keys/${idOf(banned)}/ban`, { seconds: 60, reason: 'a test' });
  await send(`${stack.gateway}/v1/pets`, { key: banned });
  const { minutes } = (await stack.admin('GET', '/traffic/minutes')).json as { minutes: Record<string, number>[] };
  const sum = (member: string) => minutes.reduce((total, minute) => total + (minute[member] ?? 0), 0);
  expect(['admitted', 'refused', 'banned', 'bannedKeys', 'serverErrors'].map(sum)).toEqual([2, 1, 1, 1, 0]);
  expect(Math.max(...minutes.map(({ p99 }) => p99 ?? 0))).toBeGreaterThan(0);

  const usage = (await stack.admin('GET', `/keys/${idOf(key)}/usage`)).json as Record<string, Record<string, number>[]>;
  for (const member of ['minutes', 'days']) {
    const counts = usage[member] ?? [];
    expect(counts.reduce((total, { admitted = 0, refused = 0 }) => total + admitted + refused, 0)).toBe(3);
  }
  expect(usage.days).toMatchObject([{ at: expect.stringMatching(/^\d{4}-\d\d-\d\d$/), admitted: 2, refused: 1 }]);
  expect((await stack.admin('GET', '/keys/000000000000/usage')).status).toBe(404);
});

test('a fault found by the doctor has the time of the first check that found it', async () => {
  const stack = await startStack();
  await stack.admin('PATCH', '/plans/pro', { mode: 'shadow' });
  const sinceOf = async () => {
    const { findings } = (await stack.admin('GET', '/doctor')).json as DoctorAnswer;
    expect(findings.every(({ status, since }) => (status === 'good') === (since === undefined))).toBe(true);
    return findings.find(({ about, status }) => about === 'plan table' && status === 'warning')?.since;
  };
  const first = await sinceOf();
  expect(Date.parse(first ?? '')).toBeGreaterThan(Date.now() - 10_000);
  expect(await sinceOf()).toBe(first);
  await stack.admin('PATCH', '/plans/pro', { mode: 'enforce' });
  expect(await sinceOf()).toBeUndefined();
});
