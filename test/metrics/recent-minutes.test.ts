import { expect, onTestFinished, test } from 'vitest';
import type { KeysOfMinute } from '../../gateway/telemetry/key-watch.ts';
import { quantile, RecentMinutes } from '../../gateway/telemetry/recent-minutes.ts';
import { DECISIONS, REQUEST_DURATION, REQUESTS } from '../../gateway/telemetry/request-metrics.ts';
import { Counter, type Family, Histogram, Label } from '../../shared/process/counts.ts';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const MINUTE_MS = 60_000;
const START = Date.parse('2026-11-20T12:00:00Z');

/** Minutes on a clock and counts of the test's own. */
function minutesOf() {
  let now = START;
  const outcomes = new Counter({ name: DECISIONS, help: '' }, new Label('outcome', ['admitted', 'banned']));
  const requests = new Counter({ name: REQUESTS, help: '' }, new Label('status', ['200', '503']));
  const seconds = new Histogram({ name: REQUEST_DURATION, help: '' }, [0.01, 0.1]);
  const banned: KeysOfMinute[] = [];
  const counted = (): Family[] => [outcomes, requests, seconds].map((one) => one.family());
  const minutes = new RecentMinutes({ counted, banned: () => banned }, () => now);
  onTestFinished(() => minutes.stop());
  return {
    minutes,
    outcomes,
    requests,
    seconds,
    banned,
    moveTo(minute: number) {
      now = START + minute * MINUTE_MS;
      minutes.closeMinute();
    },
  };
}

test('each minute has what was counted in it, and an hour is kept', () => {
  const { minutes, outcomes, requests, seconds, moveTo } = minutesOf();
  for (let minute = 0; minute < 100; minute++) {
    moveTo(minute);
    for (let request = 0; request < minute; request++) outcomes.add(0);
    requests.add(minute % 2);
    seconds.observe(0.005);
  }
  const reports = minutes.reports();
  expect(reports.length).toBe(61);
  expect(reports.map(({ admitted }) => admitted)).toEqual(Array.from({ length: 61 }, (_, at) => 39 + at));
  expect(reports[0]).toMatchObject({ at: '2026-11-20T12:39:00.000Z', serverErrors: 1, p50: 5, p99: 9.9 });
  expect(reports.at(-1)).toMatchObject({ at: '2026-11-20T13:39:00.000Z', admitted: 99 });
});

test('banned keys are told apart, over all processes, also when they are reported late', () => {
  const { minutes, outcomes, banned, moveTo } = minutesOf();
  const minute = START / MINUTE_MS;
  for (let request = 0; request < 9; request++) outcomes.add(1);
  banned.push({ minute, ids: ['a', 'b'] }, { minute, ids: ['b', 'c'] });
  expect(minutes.reports().at(-1)).toMatchObject({ banned: 9, bannedKeys: 3 });
  moveTo(1);
  banned.push({ minute, ids: ['d'] });
  expect(minutes.reports().map(({ banned, bannedKeys }) => [banned, bannedKeys])).toEqual([
    [9, 4],
    [0, 0],
  ]);
});

test('a clock that is set back tells no minute twice', () => {
  const { minutes, moveTo } = minutesOf();
  for (const minute of [1, 2, 3, 1, 2]) moveTo(minute);
  const times = minutes.reports().map(({ at }) => at);
  expect(times).toEqual([...new Set(times)].sort());
});

test('quantiles are those of Prometheus', () => {
  expect(quantile([], 0.5)).toBeNull();
  expect(
    quantile(
      [
        [0.1, 0],
        [Infinity, 0],
      ],
      0.5,
    ),
  ).toBeNull();
  expect(
    quantile(
      [
        [0.1, 10],
        [0.2, 20],
        [Infinity, 20],
      ],
      0.5,
    ),
  ).toBe(100);
  expect(
    quantile(
      [
        [0.1, 10],
        [0.2, 20],
        [Infinity, 20],
      ],
      0.75,
    ),
  ).toBe(150);
  expect(
    quantile(
      [
        [0.1, 10],
        [Infinity, 20],
      ],
      0.99,
    ),
  ).toBe(100);
});

test('the admin API tells the minutes of this gateway, and the use of a key', async () => {
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

interface Finding {
  readonly about: string;
  readonly status: string;
  readonly since?: string;
}

test('a bad finding of the doctor has the time of the first check that found it', async () => {
  const stack = await startStack();
  await stack.admin('PATCH', '/plans/pro', { mode: 'shadow' });
  const sinceOf = async () => {
    const { findings } = (await stack.admin('GET', '/doctor')).json as { findings: Finding[] };
    expect(findings.every(({ status, since }) => (status === 'good') === (since === undefined))).toBe(true);
    return findings.find(({ about, status }) => about === 'plan table' && status === 'warning')?.since;
  };
  const first = await sinceOf();
  expect(Date.parse(first ?? '')).toBeGreaterThan(Date.now() - 10_000);
  expect(await sinceOf()).toBe(first);
  await stack.admin('PATCH', '/plans/pro', { mode: 'enforce' });
  expect(await sinceOf()).toBeUndefined();
});
