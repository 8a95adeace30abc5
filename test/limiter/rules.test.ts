import { describe, expect, test } from 'vitest';
import { type Credential, credentialOf } from '../../gateway/limiter/credential.ts';
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

  test('bans at the refusal that finds the strikes full, and writes nothing during the ban', async () => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 3, ban_grace_seconds: 0, ban_seconds: 10 });
    const credential = await under.createKey();
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
    under.setPlan('free', { minute: 1, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 30_000 });
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

  test('strikes are forgotten at eight times the minute limit', async () => {
    const under = await open();
    under.setPlan('free', { ban_after: 3, ban_grace_seconds: 0 });
    const credential = await under.createKey({ minute: 1, day: 1 });
    expect(await burst(under, credential, 4)).toBe('admitted×1 refused×3');
    under.now += 2 * 7.5 * SECOND - 1;
    expect(await burst(under, credential, 1)).toBe('refused×1');
    under.now += 1;
    expect(await burst(under, credential, 2)).toBe('refused×1 banned×1');
  });

  test('bans no sooner than the grace after the strikes were first full, however many refusals come', async () => {
    const under = await open();
    under.setPlan('free', { minute: 60, ban_after: 10, ban_grace_seconds: 5 });
    const credential = await under.createKey();
    expect(await burst(under, credential, 1_000)).toBe('admitted×60 refused×940');
    for (let passed = 0; passed < 4; passed++) {
      under.now += SECOND;
      expect(await burst(under, credential, 100)).toBe('admitted×1 refused×99');
    }
    under.now += SECOND;
    expect(await burst(under, credential, 10)).toBe('admitted×1 refused×8 banned×1');
  });

  test('a pause in which all strikes are forgotten begins the grace anew', async () => {
    const under = await open();
    under.setPlan('free', { minute: 60, ban_after: 8, ban_grace_seconds: 2 });
    const credential = await under.createKey();
    expect(await burst(under, credential, 100)).toBe('admitted×60 refused×40');
    for (const pause of [SECOND, SECOND, SECOND]) {
      under.now += pause;
      expect(await burst(under, credential, 100)).toBe('admitted×1 refused×99');
    }
    // Not quite all are forgotten.
    under.now += SECOND - 1;
    await burst(under, credential, 100);
    under.now += SECOND - 1;
    await burst(under, credential, 100);
    under.now += SECOND - 1;
    expect(await burst(under, credential, 100)).toContain('banned');
  });

  test('a changed number of strikes applies to a key that was refused before', async () => {
    const under = await open();
    under.setPlan('free', { ban_after: 1, ban_grace_seconds: 0 });
    const credential = await under.createKey({ minute: 1, day: 1 });
    expect(await burst(under, credential, 2)).toBe('admitted×1 refused×1');
    under.setPlan('free', { ban_after: 4 });
    expect(await burst(under, credential, 4)).toBe('refused×3 banned×1');
  });

  test('a key holds five times its own minute limit of strikes, unless its plan says otherwise', async () => {
    const under = await open();
    under.setPlan('free', { minute: 2, ban_grace_seconds: 0 });
    const credential = await under.createKey({ minute: 6 });
    expect(await burst(under, credential, 37)).toBe('admitted×6 refused×30 banned×1');
  });

  test('each refused request is told its place in line, at most fifteen minutes or an hour ahead', async () => {
    const under = await open();
    under.setPlan('free', { minute: 2, day: 1_000, ban_after: 1_000_000 });
    const told = async (credential: Credential, times: number) => {
      const moments: number[] = [];
      for (let sent = 0; sent < times; sent++) {
        const { outcome, retryAt = 0, now } = await decision(under, credential);
        if (outcome === 'refused') moments.push(retryAt - now);
      }
      return moments;
    };
    const inLine = (length: number, tokenTime: number, most: number) =>
      Array.from({ length }, (_, at) => Math.min(tokenTime * (at + 1), most));
    const [lone, first] = [await under.createKey(), await under.createKey({ minute: 1_000, day: 1 })];
    expect(await told(lone, 34)).toEqual(inLine(32, 30 * SECOND, 900 * SECOND));
    // A token of the day that is further away than any line.
    expect(await told(first, 3)).toEqual([DAY, DAY]);
    const ofDay = await under.createKey({ minute: 1_000, day: 1_000 });
    await told(ofDay, 1_000);
    expect(await told(ofDay, 50)).toEqual(inLine(50, 86_400_000, HOUR));
    // A moment that has passed means nothing: who comes alone is told the next token again.
    under.now += 900 * SECOND;
    expect(await told(lone, 3)).toEqual([30 * SECOND]);
  });

  test('nobody is held back from a token that is there', async () => {
    const under = await open();
    const credential = await under.createKey();
    expect(await burst(under, credential, 70)).toBe('admitted×60 refused×10');
    under.now += 2 * SECOND;
    expect(await burst(under, credential, 3)).toBe('admitted×2 refused×1');
  });

  test('the time since the last decision counts at the lower of the limit then and the limit now', async () => {
    const under = await open();
    const idle = await under.createKey();
    const used = await under.createKey();
    expect(await burst(under, idle, 1)).toBe('admitted×1');
    expect(await burst(under, used, 61)).toBe('admitted×60 refused×1');
    under.now += HOUR;
    under.setPlan('free', { minute: 500, day: 1_000_000 });
    expect(await burst(under, idle, 70)).toBe('admitted×60 refused×10');
    under.now += 6 * SECOND;
    expect(await burst(under, idle, 60)).toBe('admitted×50 refused×10');
    under.setPlan('free', { minute: 60 });
    under.now += 6 * SECOND;
    expect(await burst(under, idle, 10)).toBe('admitted×6 refused×4');
    under.setPlan('free', { minute: 500 });
    under.now += 2 * SECOND;
    expect(await burst(under, idle, 10)).toBe('admitted×2 refused×8');
  });

  test.for([
    [{ minute: 60, ban_after: 300 }, { minute: 6_000 }],
    [{ minute: 60, ban_after: 300 }, { minute: 61 }],
    [{ minute: 60, ban_after: 300 }, { ban_after: 100 }],
    [{ minute: 600, ban_after: 300 }, { minute: 60 }],
  ] as const)('strikes that stand ban nobody when %j becomes %j', async ([before, changes]) => {
    for (const [ban_grace_seconds, times, said] of [
      [0, 1, 'refused×1'],
      [30, 200, 'refused×200'],
    ] as const) {
      const under = await open();
      under.setPlan('free', { day: 1_000_000, ban_grace_seconds, ...before });
      const credential = await under.createKey();
      expect(await burst(under, credential, before.minute + 300)).toBe(`admitted×${before.minute} refused×300`);
      under.now += 50_000;
      under.setPlan('free', changes);
      expect(await burst(under, credential, times)).toBe(said);
    }
  });

  test('a changed limit leaves as many strikes as there were', async () => {
    for (const minute of [6_000, 120, 61]) {
      const under = await open();
      under.setPlan('free', { minute: 60, day: 1_000_000, ban_after: 20, ban_grace_seconds: 0 });
      const credential = await under.createKey();
      expect(await burst(under, credential, 75)).toBe('admitted×60 refused×15');
      under.setPlan('free', { minute });
      expect(await burst(under, credential, 6)).toBe('refused×5 banned×1');
    }
  });

  test('a lowered limit bans nobody who comes back as told under the higher one', async () => {
    const under = await open();
    under.setPlan('free', { minute: 600, day: 1_000_000 });
    const credential = await under.createKey();
    const told: number[] = [];
    for (let sent = 0; sent < 1_100; sent++) {
      const { outcome, retryAt = 0 } = await decision(under, credential);
      if (outcome === 'refused') told.push(retryAt);
    }
    under.setPlan('free', { minute: 60 });
    const outcomes = new Set<string>();
    for (let at = told.shift(); at !== undefined; at = told.sort((one, other) => one - other).shift()) {
      under.now = Math.max(under.now, Math.ceil(at / SECOND) * SECOND);
      const { outcome, retryAt = 0 } = await decision(under, credential);
      outcomes.add(outcome);
      if (outcome === 'refused') told.push(retryAt);
    }
    expect(outcomes).toEqual(new Set(['admitted', 'refused']));
  });

  test('a lowered limit bans whoever goes on after the last time that was told under the higher one', async () => {
    const under = await open();
    under.setPlan('free', { minute: 60, day: 1_000_000, ban_after: 20, ban_grace_seconds: 0 });
    const credential = await under.createKey();
    expect(await burst(under, credential, 75)).toBe('admitted×60 refused×15');
    under.setPlan('free', { minute: 30 });
    expect(await burst(under, credential, 40)).toBe('refused×40');
    under.now += 15 * SECOND;
    expect(await burst(under, credential, 28)).toBe('admitted×7 refused×20 banned×1');
  });

  test('a wrong secret is refused and changes neither buckets nor ban', async () => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 1, ban_grace_seconds: 0 });
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
    expect(await under.limiter.decide(credential)).toEqual({
      outcome: 'unauthorized',
      reason: 'unknown',
      isOfKey: true,
    });
    expect(await under.keys.get(credential.id)).toBeUndefined();
  });

  test.for([
    ['disabled', { disabled: true }],
    ['expired', { expiresAt: 1 }],
  ] as const)('a key that is %s is refused', async ([reason, record]) => {
    const under = await open();
    const credential = await under.createKey(record);
    expect(await under.limiter.decide(credential)).toEqual({ outcome: 'unauthorized', reason, isOfKey: true });
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

  test('a raised limit shortens the line of those that were refused before', async () => {
    const under = await open();
    for (const window of ['minute', 'day'] as const) {
      const credential = await under.createKey({ minute: 1_000, day: 1_000, [window]: 1 });
      for (let sent = 0; sent < 12; sent++) await decision(under, credential);
      const before = retryAfterSeconds(await decision(under, credential)) ?? 0;
      await under.keys.change(credential.id, () => ({ record: { [window]: 1_000 } }));
      under.now += 1;
      const after = await decision(under, credential);
      expect(before).toBe(window === 'minute' ? 12 * 60 : 24 * 3_600);
      // Behind one place of the day, and twelve of the minute.
      expect(retryAfterSeconds(after)).toBe(window === 'minute' ? 1 : 173);
    }
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
