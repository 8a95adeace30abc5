import { expect, test } from 'vitest';
import { rememberBans } from '../../gateway/limiter/ban-cache.ts';
import { ChangedKeys } from '../../gateway/limiter/changed-keys.ts';
import { type Credential, credentialOf } from '../../gateway/limiter/credential.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { type LimiterUnderTest, memoryUnderTest, SECOND } from '../support/limiters.ts';
import { secretWith } from '../support/secrets.ts';

/** A limiter that remembers bans, and how often it has asked the one behind it. */
async function rememberingLimiter() {
  const under = await memoryUnderTest();
  let asked = 0;
  const counted = {
    decide: (credential: Credential) => under.limiter.decide(credential).finally(() => asked++),
    peek: (credential: Credential) => under.limiter.peek(credential),
  };
  const monotonic = () => under.now;
  const changed = new ChangedKeys(monotonic);
  return { under, limiter: rememberBans(counted, monotonic, changed), changed, asked: () => asked };
}

/** A key that the limiter has banned. */
async function bannedKey() {
  const { under, limiter, asked } = await rememberingLimiter();
  under.setPlan('free', { minute: 6, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 10 });
  const credential = await under.createKey();
  for (let sent = 0; sent < 8; sent++) await limiter.decide(credential);
  const before = asked();
  return { under, limiter, credential, asked: () => asked() - before };
}

/** A key that an operator has banned, with that many secrets: its credentials. */
async function bannedByOperator(under: LimiterUnderTest, secrets = 1): Promise<Credential[]> {
  const digests = Array.from({ length: secrets }, (_, at) => String(at).padStart(64, '0'));
  const { id } = await under.createKey({ secrets: digests.map((digest) => secretWith(digest)) });
  await under.keys.change(id, () => ({ ban: { text: 'a test', until: under.now + 10 * SECOND } }));
  return digests.map((digest) => credentialOf(id, digest));
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

test('a banned key that is used with three secrets is one ban', async () => {
  const { under, limiter } = await rememberingLimiter();
  for (const credential of await bannedByOperator(under, 3)) await limiter.decide(credential);
  expect(limiter.bans()).toBe(1);
  for (const credential of await bannedByOperator(under, 2)) await limiter.decide(credential);
  expect(limiter.bans()).toBe(2);
  under.now += 10 * SECOND;
  expect(limiter.bans()).toBe(0);
});

test('10,000 bans are remembered, and one that two requests find at once pushes out no other', async () => {
  const { under, limiter, asked } = await rememberingLimiter();
  const [first] = (await bannedByOperator(under)) as [Credential];
  const [last] = (await bannedByOperator(under)) as [Credential];
  for (const credential of [first, ...(await bannedByOperator(under, 9_998))]) await limiter.decide(credential);
  await Promise.all([limiter.decide(last), limiter.decide(last)]);
  const before = asked();
  expect((await limiter.decide(first)).outcome).toBe('banned');
  expect(asked() - before).toBe(0);
  // One more takes the place of the one that was used longest ago.
  const [more] = (await bannedByOperator(under)) as [Credential];
  await limiter.decide(more);
  expect([(await limiter.decide(first)).outcome, asked() - before]).toEqual(['banned', 1]);
});

test('a ban is not remembered past a change of its key, nor is one that was asked for before it', async () => {
  const { under, limiter, changed, asked } = await rememberingLimiter();
  const [key, other] = (await bannedByOperator(under, 2)) as [Credential, Credential];
  for (const credential of [key, other]) await limiter.decide(credential);
  changed.note(key.id);
  expect(limiter.bans()).toBe(0);
  under.now += 1;
  const before = asked();
  const late = limiter.decide(key);
  changed.note(key.id);
  under.now += 1;
  await late;
  await limiter.decide(key);
  expect(asked() - before).toBe(2);
  // What was asked for after the change is remembered.
  for (const credential of [key, key]) expect((await limiter.decide(credential)).outcome).toBe('banned');
  expect(asked() - before).toBe(2);
});
