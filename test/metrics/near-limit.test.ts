import { expect, test } from 'vitest';
import { type Client, newClient } from '../../gateway/limiter/client.ts';
import { DAY, SECOND } from '../../gateway/limiter/clock.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { type KeyEvent, KeyWatch } from '../../gateway/telemetry/key-watch.ts';
import { send } from '../support/http.ts';
import { eventuallyScraped, type Scrape } from '../support/metrics.ts';
import { startStack } from '../support/stack.ts';

const shown = (metrics: Scrape) =>
  Object.fromEntries(
    metrics.series('gateway_keys_near_day_limit').map(({ labels: { plan = '' }, value }) => [plan, value]),
  );

test('keys that have used 80 % of their day are counted by plan', async () => {
  const stack = await startStack();
  const use = async (key: string, times: number) => {
    for (let sent = 0; sent < times; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  };
  await eventuallyScraped(stack.adminUrl, shown).toEqual({ free: 0, pro: 0, business: 0, enterprise: 0 });
  await use(await stack.issueKey({ plan: 'free', day: 10 }), 7);
  await use(await stack.issueKey({ plan: 'free', day: 10 }), 8);
  await use(await stack.issueKey({ plan: 'pro', day: 1 }), 5);
  await use(await stack.issueKey({ plan: 'pro', day: 10 }), 10);
  await eventuallyScraped(stack.adminUrl, shown).toEqual({ free: 1, pro: 2, business: 0, enterprise: 0 });
});

/** A decision on a key with this many requests left for the day. */
const decided = (limit: number, tokens: number, now = 0, outcome: Decision['outcome'] = 'admitted'): Decision => ({
  outcome,
  plan: 'free',
  now,
  buckets: [
    { name: 'minute', limit: 60, window: DAY / 1_440, tokens: 60, fraction: 0 },
    { name: 'day', limit, window: DAY, tokens, fraction: 0 },
  ],
  bannedUntil: 0,
  endsAt: 0,
  mode: 'shared',
  own: { minute: false, day: false },
  isBannedByOperator: false,
  rejected: '',
});

function watched() {
  const told: [KeyEvent, string][] = [];
  const clock = { now: 0 };
  const clients = new Map<string, Client>();
  const watch = new KeyWatch(
    { all: () => clients.values(), isBanned: () => false },
    (event, keyId) => void told.push([event, keyId]),
    () => clock.now,
  );
  const note = (id: string, decision: Decision) => {
    const client = clients.get(id) ?? newClient(id);
    client.heard = { decision, at: clock.now };
    clients.set(id, client);
    watch.note(client, decision);
  };
  return { note, told, clock, near: () => watch.counts().near.get('free') };
}

test.for([1, 2, 3, 4, 5, 6, 7, 10, 99])('a key with a limit of %d is near it at exactly 80 percent', (limit) => {
  for (let used = 0; used <= limit; used++) {
    const { note, told, near } = watched();
    note('key', decided(limit, limit - used));
    const isNear = used / limit >= 0.8;
    expect([used, near(), told.length > 0]).toEqual([used, Number(isNear), isNear]);
  }
});

test('a key is counted until its bucket has refilled, even if it is not used again', () => {
  const { note, clock, near } = watched();
  note('key', decided(10, 1));
  const token = DAY / 10;
  // One of ten is left. With the third, less than 80 % is used.
  clock.now = 2 * token - SECOND;
  expect(near()).toBe(1);
  clock.now = 2 * token;
  expect(near()).toBe(0);
});

test('the 80 % event is reported once per key and UTC day', () => {
  const { note, told } = watched();
  const noon = DAY / 2;
  for (const now of [noon, noon + 1, DAY - 1, DAY, DAY + 1])
    for (const key of ['a', 'b']) note(key, decided(10, 0, now, 'banned'));
  for (const event of ['day_80', 'day_100', 'banned'] as const)
    expect(told.filter(([name]) => name === event)).toEqual([
      [event, 'a'],
      [event, 'b'],
      [event, 'a'],
      [event, 'b'],
    ]);
});

test('a ban far from the day limit is reported, but not counted as near', () => {
  const { note, told, near } = watched();
  note('key', decided(10, 9, 0, 'banned'));
  expect([told, near()]).toEqual([[['banned', 'key']], 0]);
});
