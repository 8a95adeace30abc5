import { expect, test } from 'vitest';
import { type Client, newClient } from '../../gateway/limiter/client.ts';
import { MINUTE, SECOND } from '../../gateway/limiter/clock.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { KeyWatch } from '../../gateway/telemetry/key-watch.ts';
import { createAuthority } from '../support/certificates.ts';
import { send } from '../support/http.ts';
import { eventuallyScraped, scrape } from '../support/metrics.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const decided = (outcome: Decision['outcome'], plan: Decision['plan'] = 'free'): Decision => ({
  outcome,
  plan,
  now: 0,
  buckets: [
    { name: 'minute', limit: 60, window: MINUTE, tokens: 60, fraction: 0 },
    { name: 'day', limit: 1_000, window: 1_440 * MINUTE, tokens: 1_000, fraction: 0 },
  ],
  bannedUntil: 0,
  endsAt: 0,
  mode: 'shared',
  own: { minute: false, day: false },
  isBannedByOperator: false,
  rejected: '',
});

function recent() {
  const clock = { now: 0 };
  const clients = new Map<string, Client>();
  const watch = new KeyWatch(
    { all: () => clients.values(), isBanned: () => false },
    () => {},
    () => clock.now,
  );
  return {
    note(id: string, decision: Decision) {
      const client = clients.get(id) ?? newClient(id);
      client.heard = { decision, at: clock.now };
      clients.set(id, client);
      watch.note(client, decision);
    },
    at(now: number) {
      clock.now = now;
    },
    counts() {
      const { refused, asking } = watch.counts();
      return ['free' as const, 'pro' as const].map((plan) => `${refused.get(plan)} of ${asking.get(plan)}`).join(', ');
    },
  };
}

test('many refusals of one key count as one key', () => {
  const { note, counts } = recent();
  for (let sent = 0; sent < 100; sent++) note('loud', decided('refused'));
  note('calm', decided('admitted'));
  note('banned', decided('banned'));
  expect(counts()).toBe('1 of 3, 0 of 0');
});

test('a key counts as active for ten minutes after its last request, and as refused for ten after its last refusal', () => {
  const { note, at, counts } = recent();
  note('key', decided('refused'));
  at(MINUTE);
  note('key', decided('admitted'));
  at(10 * MINUTE - SECOND);
  expect(counts()).toBe('1 of 1, 0 of 0');
  at(10 * MINUTE);
  expect(counts()).toBe('0 of 1, 0 of 0');
  at(11 * MINUTE);
  expect(counts()).toBe('0 of 0, 0 of 0');
});

test('all gauges of a scrape are from one count', () => {
  const { note, at, counts } = recent();
  note('first', decided('admitted'));
  expect(counts()).toBe('0 of 1, 0 of 0');
  note('second', decided('refused'));
  expect(counts()).toBe('0 of 1, 0 of 0');
  at(SECOND);
  expect(counts()).toBe('1 of 2, 0 of 0');
});

test('/metrics has the refused keys, the memory of Redis and the expiry of the certificate', async () => {
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
  // Nothing ends that is not there: 0 would raise the alert.
  expect(shared.sum('gateway_certificate_expires_timestamp_seconds')).toBeUndefined();
  const days = ((embedded.sum('gateway_certificate_expires_timestamp_seconds') ?? 0) - Date.now() / 1_000) / 86_400;
  expect(Math.round(days)).toBe(30);
  expect(embedded.sum('gateway_certificate_rejected')).toBe(0);
});
