import { describe, expect, test } from 'vitest';
import { countsOf } from '../../gateway/limiter/usage-marks.ts';
import { bothLimiters, type LimiterUnderTest, SECOND } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';

/** A reset gives a key a fresh start, with both limiters. */

const { url } = await emptyDatabase();
const MINUTE = 60 * SECOND;

const reset = (under: LimiterUnderTest, id: string) => under.keys.change(id, () => ({ ban: 'reset' }));

describe.for(bothLimiters(url))('with %s', ([, open]) => {
  /** A key that decisions have banned twice, with both buckets empty. */
  async function bannedTwice(under: LimiterUnderTest) {
    under.setPlan('free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 100 });
    const key = await under.createKey({ minute: 3, day: 3 });
    const decide = async () => (await under.limiter.decide(key)) as never as Record<string, number>;
    const untilBanned = async () => {
      for (let sent = 0; sent < 10; sent++) {
        const { outcome, bannedUntil } = (await decide()) as { outcome: unknown; bannedUntil: number };
        if (outcome === 'banned') return bannedUntil - under.now;
      }
      throw new Error('The key was not banned.');
    };
    expect(await untilBanned()).toBe(100 * SECOND);
    under.now += 101 * SECOND;
    expect(await untilBanned()).toBe(200 * SECOND);
    return { key, decide, untilBanned };
  }

  test('both buckets are full, and ban, line, strikes and series are forgotten', async () => {
    const under = await open();
    const { key, decide, untilBanned } = await bannedTwice(under);
    const after = await reset(under, key.id);
    expect(after).toMatchObject({ bannedUntil: 0, bans: 0, refusals: { lineUntil: 0, strikesUntil: 0, fullAt: 0 } });
    expect(await decide()).toMatchObject({ outcome: 'admitted', buckets: [{ tokens: 2 }, { tokens: 2 }] });
    // Without a line, the first place is that of the next token; without a series, a ban has its first length.
    for (let sent = 0; sent < 2; sent++) await decide();
    const refused = await decide();
    expect([refused.outcome, refused.retryAt]).toEqual(['refused', under.now + MINUTE * 480]);
    expect(await untilBanned()).toBe(100 * SECOND);
  });

  test('lifting a ban fills no bucket', async () => {
    const under = await open();
    const { key, decide } = await bannedTwice(under);
    await under.keys.change(key.id, () => ({ ban: 'lift' }));
    expect(await decide()).toMatchObject({ outcome: 'refused' });
  });

  test('the buckets are full by the limits of the next decision', async () => {
    const under = await open();
    const { key, decide } = await bannedTwice(under);
    await reset(under, key.id);
    await under.keys.change(key.id, () => ({ record: { minute: 20, day: 50 } }));
    expect(await decide()).toMatchObject({ outcome: 'admitted', buckets: [{ tokens: 19 }, { tokens: 49 }] });
  });

  test('use is counted as before, in the minutes in which it was', async () => {
    const under = await open();
    const key = await under.createKey({ minute: 10, day: 100 });
    const first = Math.floor(under.now / MINUTE);
    for (let sent = 0; sent < 4; sent++) await under.limiter.decide(key);
    under.now += 3 * MINUTE;
    const before = await under.keys.get(key.id);
    const after = await reset(under, key.id);
    const counters = { admitted: 4, refused: 0, usage: before?.usage, asOf: before?.asOf, used: before?.used };
    expect(after).toMatchObject(counters);
    for (let sent = 0; sent < 2; sent++) await under.limiter.decide(key);
    const { usage, ...totals } = (await under.keys.get(key.id)) as NonNullable<typeof after>;
    expect(countsOf(usage.minutes, totals)).toEqual([
      { at: first, admitted: 4, refused: 0 },
      { at: first + 3, admitted: 2, refused: 0 },
    ]);
  });

  test('a key without a decision has none afterwards either', async () => {
    const under = await open();
    const key = await under.createKey({ minute: 10, day: 100 });
    expect(await reset(under, key.id)).toMatchObject({ asOf: undefined, admitted: 0 });
    expect(await under.limiter.decide(key)).toMatchObject({ buckets: [{ tokens: 9 }, { tokens: 99 }] });
  });
});
