import { expect, test } from 'vitest';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { RecentKeys } from '../../gateway/telemetry/key-watch.ts';
import { createAuthority } from '../support/certificates.ts';
import { send } from '../support/http.ts';
import { eventuallyScraped, scrape } from '../support/metrics.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const decided = (outcome: Decision['outcome'], plan: Decision['plan'] = 'free'): Decision => ({
  outcome,
  plan,
  now: 0,
  buckets: [],
  bannedUntil: 0,
  endsAt: 0,
  mode: 'shared',
  own: { minute: false, day: false },
  isBannedByOperator: false,
  rejected: '',
});

const MINUTE_MS = 60_000;

function recent() {
  const clock = { ms: 0 };
  const keys = new RecentKeys(() => clock.ms);
  const counts = () => `${keys.refused().get('free')} of ${keys.asking().get('free')}`;
  return { clock, keys, counts };
}

test('many refusals of one key are one key', () => {
  const { keys, counts } = recent();
  for (let sent = 0; sent < 100; sent++) keys.note('loud', decided('refused'));
  keys.note('calm', decided('admitted'));
  keys.note('banned', decided('banned'));
  expect(counts()).toBe('1 of 3');
  expect(keys.asking().get('pro')).toBe(0);
});

test('a key that was refused and is admitted again is still counted; five to ten minutes after its last request it is not', () => {
  const { clock, keys, counts } = recent();
  keys.note('key', decided('refused'));
  clock.ms = MINUTE_MS;
  keys.note('key', decided('admitted'));
  expect(counts()).toBe('1 of 1');
  clock.ms = 6 * MINUTE_MS;
  expect(counts()).toBe('1 of 1');
  clock.ms = 12 * MINUTE_MS;
  expect(counts()).toBe('0 of 0');
});

test('a quiet time of two windows leaves nothing, and memory is bounded', () => {
  const { clock, keys, counts } = recent();
  for (let at = 0; at < 20_000; at++) keys.note(`key ${at}`, decided('refused'));
  expect(counts()).toBe('10000 of 10000');
  clock.ms = 11 * MINUTE_MS;
  expect(counts()).toBe('0 of 0');
});

test('refused keys, the memory of Redis and the end of the certificate are on /metrics', async () => {
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
