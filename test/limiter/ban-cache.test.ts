import { expect, test } from 'vitest';
import { rememberBans } from '../../gateway/limiter/ban-cache.ts';
import { type Credential, credentialOf } from '../../gateway/limiter/credential.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { memoryUnderTest, SECOND } from '../support/limiters.ts';

async function bannedKey() {
  const under = await memoryUnderTest();
  under.setPlan('free', { minute: 6, ban_after: 1, ban_seconds: 10 });
  let asked = 0;
  const counted = {
    decide: (credential: Credential) => under.limiter.decide(credential).finally(() => asked++),
    peek: (credential: Credential) => under.limiter.peek(credential),
  };
  const limiter = rememberBans(counted, () => under.now);
  const credential = await under.createKey();
  for (let sent = 0; sent < 8; sent++) await limiter.decide(credential);
  asked = 0;
  return { under, limiter, credential, asked: () => asked };
}

test('a ban is remembered for a second, and its verdict advances with the time', async () => {
  const { under, limiter, credential, asked } = await bannedKey();
  const first = (await limiter.decide(credential)) as Decision;
  under.now += 900_000;
  const later = (await limiter.decide(credential)) as Decision;
  expect(asked()).toBe(0);
  expect([later.outcome, later.bannedUntil, later.now - first.now]).toEqual(['banned', first.bannedUntil, 900_000]);
  expect(later.buckets[0]?.fraction).toBeGreaterThan(first.buckets[0]?.fraction as number);
  under.now += 100_000;
  await limiter.decide(credential);
  expect(asked()).toBe(1);
});

test('it does not reveal to a wrong secret that the key is banned', async () => {
  const { limiter, credential } = await bannedKey();
  const verdict = await limiter.decide(credentialOf(credential.id, '0'.repeat(64)));
  expect(verdict).toEqual({ outcome: 'unauthorized', reason: 'unknown' });
});

test('a ban that ends within that second ends on time', async () => {
  const { under, limiter, credential } = await bannedKey();
  under.now += 10 * SECOND - 300_000;
  expect((await limiter.decide(credential)).outcome).toBe('banned');
  under.now += 300_000;
  expect((await limiter.decide(credential)).outcome).toBe('admitted');
});
