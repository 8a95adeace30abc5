import { describe, expect, test } from 'vitest';
import { credentialOf } from '../../gateway/limiter/credential.ts';
import { retryAfterSeconds } from '../../gateway/pipeline/client-headers.ts';
import { bothLimiters, burst, decision, SECOND } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';

const { url } = await emptyDatabase();
const HOUR = 3_600 * SECOND;
const DAY = 24 * HOUR;

describe.for(bothLimiters(url))('%s', ([, open]) => {
  test('admits a full bucket at once, then one request per refilled token', async () => {
    const under = await open();
    under.setPlan('free', { minute: 3 });
    const credential = await under.createKey();
    expect(await burst(under, credential, 4)).toBe('admitted×3 refused×1');
    under.now += 20 * SECOND - 1;
    expect(await burst(under, credential, 1)).toBe('refused×1');
    under.now += 1;
    expect(await burst(under, credential, 2)).toBe('admitted×1 refused×1');
    under.now += HOUR;
    expect(await burst(under, credential, 4)).toBe('admitted×3 refused×1');
  });

  test('takes from both buckets or from neither', async () => {
    const under = await open();
    under.setPlan('free', { minute: 2, day: 3 });
    const credential = await under.createKey();
    await burst(under, credential, 2);
    const refused = await decision(under, credential);
    expect(refused.buckets.map(({ tokens }) => tokens)).toEqual([0, 1]);
    under.now += 60 * SECOND;
    expect(await burst(under, credential, 2)).toBe('admitted×1 refused×1');
    expect((await decision(under, credential)).buckets.map(({ tokens }) => tokens)).toEqual([1, 0]);
  });

  test('bans at exactly the first early request over the limit, and writes nothing during the ban', async () => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 3, ban_within_seconds: 60, ban_seconds: 10 });
    const credential = await under.createKey();
    // The client that was served may send again: that is not early.
    expect(await burst(under, credential, 4)).toBe('admitted×1 refused×3');
    const ban = await decision(under, credential);
    expect([ban.outcome, ban.bannedUntil - under.now]).toEqual(['banned', 10 * SECOND]);
    const before = await under.keys.get(credential.id);
    under.now += 9 * SECOND;
    expect(await burst(under, credential, 50)).toBe('banned×50');
    expect(await under.keys.get(credential.id)).toEqual(before);
  });

  test('a ban ends on time and the next one within a day is twice as long, up to a day', async () => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 1, ban_within_seconds: 1, ban_seconds: 30_000 });
    const credential = await under.createKey();
    const lengths: number[] = [];
    for (let round = 0; round < 4; round++) {
      expect(await burst(under, credential, 2)).toBe('admitted×1 refused×1');
      const ban = await decision(under, credential);
      lengths.push((ban.bannedUntil - under.now) / SECOND);
      under.now = ban.bannedUntil - 1;
      expect((await decision(under, credential)).outcome).toBe('banned');
      under.now = ban.bannedUntil;
    }
    expect(lengths).toEqual([30_000, 60_000, 86_400, 86_400]);
    under.now += 2 * DAY;
    await burst(under, credential, 2);
    expect((await decision(under, credential)).bannedUntil - under.now).toBe(30_000 * SECOND);
  });

  test('early requests are forgotten after five sixths of ban_within_seconds', async () => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 3, ban_within_seconds: 6 });
    const credential = await under.createKey({ minute: 1, day: 1 });
    expect(await burst(under, credential, 4)).toBe('admitted×1 refused×3');
    under.now += 5 * SECOND;
    expect(await burst(under, credential, 2)).toBe('refused×2');
  });

  test('a changed limit of early requests applies to a key that was refused before', async () => {
    const under = await open();
    under.setPlan('free', { ban_after: 1 });
    const credential = await under.createKey({ minute: 1, day: 1 });
    expect(await burst(under, credential, 2)).toBe('admitted×1 refused×1');
    under.setPlan('free', { ban_after: 4 });
    expect(await burst(under, credential, 4)).toBe('refused×3 banned×1');
  });

  test("the tolerated early requests scale with a key's own minute limit", async () => {
    const under = await open();
    under.setPlan('free', { minute: 2, ban_after: 2 });
    const credential = await under.createKey({ minute: 6 });
    expect(await burst(under, credential, 13)).toBe('admitted×6 refused×6 banned×1');
  });

  test('on notice tokens are kept for those who wait', async () => {
    const under = await open();
    under.setPlan('free', { minute: 60, ban_after: 9 });
    const credential = await under.createKey();
    expect(await burst(under, credential, 62)).toBe('admitted×60 refused×2');
    under.now += 500_000;
    expect(await burst(under, credential, 1)).toBe('refused×1');
    under.now += 200_000;
    expect((await decision(under, credential)).outcome).toBe('refused');
    // The first waiter comes on time. The next one comes early and finds no token.
    under.now += 2_200_000;
    expect(await burst(under, credential, 4)).toBe('admitted×2 refused×2');
    under.now += 1_500_000;
    const early = await decision(under, credential);
    expect([early.outcome, early.buckets[0]?.tokens]).toEqual(['refused', 2]);
  });

  test('a wrong secret is refused and changes neither buckets nor ban', async () => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 1 });
    const credential = await under.createKey();
    const wrong = credentialOf(credential.id, '0'.repeat(64));
    expect(await burst(under, wrong, 20)).toBe('unauthorized×20');
    expect(await burst(under, credential, 2)).toBe('admitted×1 refused×1');
    expect(await burst(under, credential, 1)).toBe('banned×1');
    expect(await burst(under, wrong, 1)).toBe('unauthorized×1');
  });

  test('a revoked key is refused at its next decision', async () => {
    const under = await open();
    const credential = await under.createKey();
    await decision(under, credential);
    await under.keys.remove(credential.id);
    expect(await under.limiter.decide(credential)).toEqual({ outcome: 'unauthorized', reason: 'unknown' });
    expect(await under.keys.get(credential.id)).toBeUndefined();
  });

  test.for([
    ['disabled', { disabled: true }],
    ['expired', { expiresAt: 1 }],
  ] as const)('a key that is %s is refused', async ([reason, record]) => {
    const under = await open();
    const credential = await under.createKey(record);
    expect(await under.limiter.decide(credential)).toEqual({ outcome: 'unauthorized', reason });
  });

  test('the secret before a rotation works until its grace time ends, on the same buckets', async () => {
    const under = await open();
    under.setPlan('free', { minute: 2 });
    const oldSecret = 'a'.repeat(64);
    const credential = await under.createKey({
      secrets: [secretWith(oldSecret, { expiresAt: under.now + 20 * SECOND })],
    });
    const old = credentialOf(credential.id, oldSecret);
    expect(await burst(under, old, 1)).toBe('admitted×1');
    expect((await decision(under, credential)).buckets[0]?.tokens).toBe(0);
    under.now += 20 * SECOND;
    expect(await burst(under, old, 1)).toBe('unauthorized×1');
  });

  test('an enterprise key has its own limits, and without them there is no decision', async () => {
    const under = await open();
    const credential = await under.createKey({ plan: 'enterprise', minute: 5, day: 7 });
    expect((await decision(under, credential)).buckets.map(({ limit }) => limit)).toEqual([5, 7]);
    const without = await under.createKey({ plan: 'enterprise' });
    expect(await under.limiter.decide(without)).toEqual({ outcome: 'undecided', reason: 'misconfigured' });
  });

  test('a raised limit admits a refused key within its new refill time, and nothing is reset', async () => {
    const under = await open();
    under.setPlan('free', { minute: 1 });
    const credential = await under.createKey();
    expect(await burst(under, credential, 2)).toBe('admitted×1 refused×1');
    under.setPlan('free', { minute: 60 });
    expect(await burst(under, credential, 1)).toBe('refused×1');
    under.now += SECOND;
    expect(await burst(under, credential, 2)).toBe('admitted×1 refused×1');
  });

  test('a lowered limit clamps what is left', async () => {
    const under = await open();
    const credential = await under.createKey();
    under.setPlan('free', { minute: 2 });
    expect(await burst(under, credential, 3)).toBe('admitted×2 refused×1');
  });

  test('waiting for Retry-After is enough, and a second less is not', async () => {
    const under = await open();
    for (const [minute, day] of [
      [60, 1_000],
      [7, 1_000],
      [1_000, 3],
      [1, 1],
    ] as const) {
      const credential = await under.createKey({ minute, day });
      let last = await decision(under, credential);
      while (last.outcome === 'admitted') last = await decision(under, credential);
      const seconds = retryAfterSeconds(last) ?? 0;
      under.now += (seconds - 1) * SECOND;
      expect((await decision(under, credential)).outcome).toBe('refused');
      under.now += SECOND;
      expect((await decision(under, credential)).outcome).toBe('admitted');
    }
  });

  test('a client that respects Retry-After completes 500 requests on a plan of 60 a minute without a ban', async () => {
    const under = await open();
    const credential = await under.createKey();
    const outcomes = { admitted: 0, refused: 0, banned: 0, forbidden: 0 };
    while (outcomes.admitted < 500 && outcomes.banned === 0) {
      const verdict = await decision(under, credential);
      outcomes[verdict.outcome] += 1;
      under.now += (retryAfterSeconds(verdict) ?? 0) * SECOND;
    }
    expect(outcomes).toEqual({ admitted: 500, refused: 440, banned: 0, forbidden: 0 });
  });
});
