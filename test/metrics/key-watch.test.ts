import { expect, test } from 'vitest';
import { DAY, MINUTE, SECOND } from '../../gateway/limiter/bucket.ts';
import { Client } from '../../gateway/limiter/client.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { type KeyEvent, KeyWatch } from '../../gateway/telemetry/key-watch.ts';
import { createAuthority } from '../support/certificates.ts';
import { send } from '../support/http.ts';
import { eventuallyScraped, type Scrape, scrape } from '../support/metrics.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

/** Gauges for the keys in use, and events for keys near their limits. */

/** A decision on a key with `tokens` requests left for the day. */
const decided = (outcome: Decision['outcome'], { limit = 1_000, tokens = 1_000, now = 0 } = {}): Decision => ({
  outcome,
  plan: 'free',
  now,
  buckets: [
    { name: 'minute', limit: 60, window: MINUTE, tokens: 60, fraction: 0 },
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
  const notified: [KeyEvent, string][] = [];
  const clock = { now: 0 };
  const clients = new Map<string, Client>();
  const watch = new KeyWatch(
    { all: () => clients.values(), isBanned: () => false },
    (event, keyId) => void notified.push([event, keyId]),
    () => clock.now,
  );
  const note = (id: string, decision: Decision) => {
    const client = clients.get(id) ?? new Client(id);
    client.lastReply = { decision, at: clock.now };
    clients.set(id, client);
    client.askedAt = clock.now;
    watch.note(client, decision);
  };
  const counts = () => {
    const { refused, asking } = watch.counts();
    return (['free', 'pro'] as const).map((plan) => `${refused.get(plan)} of ${asking.get(plan)}`).join(', ');
  };
  return { note, notified, clock, counts, near: () => watch.counts().near.get('free') };
}

test('a key counts as active for ten minutes after a request, and as refused after a refusal', () => {
  const { note, clock, counts } = watched();
  for (let sent = 0; sent < 100; sent++) note('key', decided('refused'));
  note('calm', decided('banned'));
  expect(counts()).toBe('1 of 2, 0 of 0');
  clock.now = MINUTE;
  note('key', decided('admitted'));
  clock.now = 10 * MINUTE - SECOND;
  expect(counts()).toBe('1 of 2, 0 of 0');
  clock.now = 10 * MINUTE;
  expect(counts()).toBe('0 of 1, 0 of 0');
  clock.now = 11 * MINUTE;
  expect(counts()).toBe('0 of 0, 0 of 0');
});

test('all gauges of a scrape come from the same count', () => {
  const { note, clock, counts } = watched();
  note('first', decided('admitted'));
  expect(counts()).toBe('0 of 1, 0 of 0');
  note('second', decided('refused'));
  expect(counts()).toBe('0 of 1, 0 of 0');
  clock.now = SECOND;
  expect(counts()).toBe('1 of 2, 0 of 0');
});

const shown = (metrics: Scrape) =>
  Object.fromEntries(
    metrics.series('gateway_keys_near_day_limit').map(({ labels: { plan = '' }, value }) => [plan, value]),
  );

test('keys that have used 80 % of their day limit are counted by plan', async () => {
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

test.for([1, 2, 3, 4, 5, 6, 7, 10, 99])('a key with a limit of %d counts as near it from exactly 80 % on', (limit) => {
  for (let used = 0; used <= limit; used++) {
    const { note, notified, near } = watched();
    note('key', decided('admitted', { limit, tokens: limit - used }));
    const isNear = used / limit >= 0.8;
    expect([used, near(), notified.length > 0]).toEqual([used, Number(isNear), isNear]);
  }
});

test('a key is counted until its bucket has refilled, even if it is not used again', () => {
  const { note, clock, near } = watched();
  note('key', decided('admitted', { limit: 10, tokens: 1 }));
  const token = DAY / 10;
  // One of ten tokens is left. Once two more have refilled, less than 80 % is used.
  clock.now = 2 * token - SECOND;
  expect(near()).toBe(1);
  clock.now = 2 * token;
  expect(near()).toBe(0);
});

test('each event is reported once per key and UTC day', () => {
  const { note, notified } = watched();
  const noon = DAY / 2;
  for (const now of [noon, noon + 1, DAY - 1, DAY, DAY + 1])
    for (const key of ['a', 'b']) note(key, decided('banned', { limit: 10, tokens: 0, now }));
  for (const event of ['day_80', 'day_100', 'banned'] as const)
    expect(notified.filter(([name]) => name === event)).toEqual([
      [event, 'a'],
      [event, 'b'],
      [event, 'a'],
      [event, 'b'],
    ]);
});

test('a ban on a key far from its day limit is reported, but the key does not count as near the limit', () => {
  const { note, notified, near } = watched();
  note('key', decided('banned', { limit: 10, tokens: 9 }));
  expect([notified, near()]).toEqual([[['banned', 'key']], 0]);
});

test('/metrics includes the refused keys, Redis memory and the expiry of the certificate', async () => {
  const { url: REDIS_URL } = await emptyDatabase();
  const { certFile, keyFile } = await createAuthority(undefined, 30);
  const tls = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile };
  const [stack, withTls] = [await startStack({ REDIS_URL, REDIS_TIMEOUT_MS: '5000' }), await startStack(tls)];
  const key = await stack.issueKey({ plan: 'pro', minute: 1 });
  for (let sent = 0; sent < 3; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_keys_refused', { plan: 'pro' })).toBe(1);
  const [shared, embedded] = [await scrape(stack.adminUrl), await scrape(withTls.adminUrl)];
  const used = shared.sum('gateway_redis_memory_used_ratio', { node: 'redis' }) ?? Number.NaN;
  expect([used > 0, used < 1]).toEqual([true, true]);
  expect(embedded.sum('gateway_redis_memory_used_ratio')).toBeUndefined();
  // Without a certificate there is no series, because 0 would raise the alert.
  expect(shared.sum('gateway_certificate_expires_timestamp_seconds')).toBeUndefined();
  const days = ((embedded.sum('gateway_certificate_expires_timestamp_seconds') ?? 0) - Date.now() / 1_000) / 86_400;
  expect(Math.round(days)).toBe(30);
  expect(embedded.sum('gateway_certificate_rejected')).toBe(0);
});
