import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import type { Exchange } from '../../gateway/telemetry/exchange.ts';
import { RecentRequests } from '../../gateway/telemetry/recent-requests.ts';
import { cleanUp } from '../support/clean-up.ts';

/** Tests which requests a process keeps and how it counts and lists them. */

const BUCKETS = ['minute', 'day'].map((name) => ({ name, limit: 60, window: 60, tokens: 0, fraction: 0 }));

/** A record of a request with a key, as a gateway would create it. */
const seen = (id: string, keyId: string, outcome: 'admitted' | 'refused') =>
  ({
    ...{ id, request: { method: 'GET' }, canonical: { path: '/v1/pets' }, network: '192.0.2.1', keyId, outcome },
    verdict: { outcome, buckets: BUCKETS, now: 0, plan: 'free', bannedUntil: 0, rejected: '' },
    ...{
      status: outcome === 'admitted' ? 200 : 429,
      startedAt: performance.now(),
      endedAt: performance.now(),
      notedPlace: 0,
    },
  }) as unknown as Exchange;

test('refusals are kept longer than successes, and an aggressive client displaces no refusals of others', async () => {
  const recent = new RecentRequests(100, { version: 'a version' });
  const record = (one: Exchange) => {
    recent.decided(one);
    recent.ended(one);
  };
  record(seen('calm refused', 'calm', 'refused'));
  for (let at = 0; at < 5_000; at++) record(seen(`loud ${at}`, 'loud', 'refused'));
  for (let at = 0; at < 1_000; at++) record(seen(`admitted ${at}`, 'calm', 'admitted'));
  const all = await recent.find({ limit: 1_000 });
  expect(all.filter(({ outcome }) => outcome === 'admitted')).toHaveLength(50);
  const refused = all.filter(({ outcome }) => outcome === 'refused');
  expect(refused.length).toBeLessThanOrEqual(30);
  expect(refused.reduce((sum, { repeated }) => sum + repeated, 0)).toBeGreaterThan(4_000);
  expect(refused.map(({ requestId }) => requestId)).toContain('calm refused');
});

test('admitted requests that fail do not displace successful ones', async () => {
  const recent = new RecentRequests(100, { version: 'a version' });
  const inFlight = Array.from({ length: 5 }, (_, at) => seen(`slow ${at}`, 'loud', 'admitted'));
  for (let at = 0; at < 40; at++) {
    const one = seen(`served ${at}`, 'calm', 'admitted');
    recent.decided(one);
    recent.ended(one);
  }
  for (const one of inFlight) recent.decided(one);
  for (let at = 0; at < 5_000; at++) {
    const one = Object.assign(seen(`missing ${at}`, 'loud', 'admitted'), { status: 404 });
    recent.decided(one);
    if (at % 1_000 === 0) recent.ended(Object.assign(inFlight[at / 1_000] as Exchange, { status: 404 }));
    recent.ended(one);
  }
  const served = (await recent.find({ limit: 1_000 })).filter(({ status }) => status === 200);
  expect(served.map(({ requestId }) => requestId)).toEqual(Array.from({ length: 40 }, (_, at) => `served ${39 - at}`));
});

test('a refusal is counted only in an entry of its own key, however many refusals of other keys followed', async () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  cleanUp(() => vi.useRealTimers());
  const recent = new RecentRequests(100, { version: 'a version' });
  const sent = new Map<string, number>();
  const refuse = (keyId: string, times: number) => {
    for (let at = 0; at < times; at++) recent.ended(seen(`${keyId} ${at}`, keyId, 'refused'));
    sent.set(keyId, (sent.get(keyId) ?? 0) + times);
  };
  refuse('loud', 7);
  for (let at = 0; at < 11; at++) refuse(`calm ${at}`, 6);
  refuse('loud', 200);
  const listed = new Map<string, number>();
  for (const { keyId = '', repeated } of await recent.find({ limit: 1_000 }))
    listed.set(keyId, (listed.get(keyId) ?? 0) + 1 + repeated);
  for (const [keyId, count] of listed) expect([keyId, count <= (sent.get(keyId) ?? 0)]).toEqual([keyId, true]);
  expect(listed.get('loud')).toBe(200);
});

test('a list contains each request once, even if others are recorded or fail while the list is built', async () => {
  const recent = new RecentRequests(4_000, { version: 'a version' });
  let made = 0;
  const record = (status: number) => {
    const one = Object.assign(seen(`request ${made++}`, 'loud', 'admitted'), { status });
    recent.decided(one);
    return one;
  };
  for (let at = 0; at < 2_000; at++) recent.ended(record(200));
  for (const status of [200, 404]) {
    const running = Array.from({ length: 300 }, () => record(status));
    const found = recent.find({ limit: 10_000 });
    while (running.length > 0) {
      for (const one of running.splice(0, 60)) recent.ended(one);
      if (status === 200) for (let at = 0; at < 60; at++) recent.ended(record(200));
      await nextTurn();
    }
    const ids = (await found).map(({ requestId }) => requestId);
    const cursors = (await found).map(({ cursor }) => cursor);
    expect(new Set(ids).size).toBe(ids.length);
    expect(cursors).toEqual(cursors.toSorted().reverse());
    const expected = Array.from({ length: 1_000 }, (_, at) => `request ${at + 700}`);
    if (status === 200) expect(ids).toEqual(expect.arrayContaining(expected));
  }
});
