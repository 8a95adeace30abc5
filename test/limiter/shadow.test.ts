import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Credential } from '../../gateway/limiter/credential.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { DEFAULT_PLANS, readPlans, storedPlans } from '../../gateway/limiter/plans.ts';
import { type LimiterUnderTest, memoryUnderTest, redisUnderTest, SECOND } from '../support/limiters.ts';
import { NAUGHTY_VALUES } from '../support/naughty-values.ts';
import { emptyDatabase } from '../support/redis-database.ts';

const { url } = await emptyDatabase();

/** The outcome, or 'shadowed', and the tokens left in both buckets. */
async function ask({ limiter }: LimiterUnderTest, credential: Credential): Promise<string> {
  const { outcome, isShadowed, buckets } = (await limiter.decide(credential)) as Decision;
  return `${isShadowed ? 'shadowed' : outcome} ${buckets.map(({ tokens }) => tokens).join('/')}`;
}

async function askTimes(under: LimiterUnderTest, credential: Credential, times: number): Promise<string[]> {
  const said: string[] = [];
  for (let time = 0; time < times; time++) said.push(await ask(under, credential));
  return said;
}

describe.for([
  ['the embedded limiter', memoryUnderTest],
  ['decide.lua', () => redisUnderTest(url)],
] as const)('%s', ([, open]) => {
  test("an operator's ban binds in shadow mode too", async () => {
    const under = await open();
    under.setPlan('free', { mode: 'shadow' });
    const credential = await under.createKey();
    await ask(under, credential);
    const until = under.now + 60 * SECOND;
    await under.keys.change(credential.id, () => ({ ban: { text: 'scrapes', until } }));
    expect(await ask(under, credential)).toBe('banned 59/999');
    under.now -= 10 * SECOND;
    expect(await under.limiter.decide(credential)).toMatchObject({ outcome: 'banned', bannedUntil: until });
    under.now = until;
    expect(await ask(under, credential)).toBe('admitted 59/998');
  });

  test('exactly the requests that would have been refused are shadowed, for any traffic', async () => {
    const [enforcing, shadowing] = [await open(), await open()];
    const traffic = fc.array(fc.tuple(fc.integer({ min: 0, max: 40 * SECOND }), fc.integer({ min: 1, max: 4 })));
    let refused = 0;
    await fc.assert(
      fc.asyncProperty(traffic, async (pauses) => {
        const keys = [await enforcing.createKey(), await shadowing.createKey()] as const;
        enforcing.setPlan('free', { minute: 3, day: 40, ban_after: 1_000_000_000 });
        shadowing.setPlan('free', { minute: 3, day: 40, ban_after: 1, mode: 'shadow' });
        for (const [pause, times] of pauses) {
          for (const under of [enforcing, shadowing]) under.now += pause;
          const expected = await askTimes(enforcing, keys[0], times);
          const said = await askTimes(shadowing, keys[1], times);
          expect(said).toEqual(expected.map((text) => text.replace('refused', 'shadowed')));
          refused += expected.filter((text) => text.startsWith('refused')).length;
        }
      }),
      { numRuns: 40 },
    );
    expect(refused).toBeGreaterThan(50);
  });
});

describe('the mode of a plan', () => {
  const stored = storedPlans(DEFAULT_PLANS);
  const shadow = readPlans({ ...stored, 'free.mode': 'shadow' }, DEFAULT_PLANS);

  test('is one of two words, by default enforce', () => {
    expect(shadow).toEqual({
      table: { ...DEFAULT_PLANS, free: { ...DEFAULT_PLANS.free, mode: 'shadow' } },
      rejected: [],
    });
    expect(readPlans(stored, shadow.table)).toEqual({ table: DEFAULT_PLANS, rejected: [] });
    expect(readPlans({ ...stored, 'free.mode': 'enforce' }, shadow.table).table.free.mode).toBe('enforce');
  });

  test('keeps its last value, with an alarm, for any other text', () => {
    for (const bad of [...NAUGHTY_VALUES, 'Shadow', 'SHADOW', 'shadow ', ' enforce', 'shadow\n', 'off', 'true', '1']) {
      const reading = readPlans({ ...stored, 'free.mode': bad, 'enterprise.mode': bad }, shadow.table);
      expect(reading.table, bad).toEqual(shadow.table);
      expect(reading.rejected).toEqual([
        { field: 'free.mode', value: bad, kept: 'shadow' },
        { field: 'enterprise.mode', value: bad, kept: 'enforce' },
      ]);
    }
  });

  test('keeps its last value if the whole table is gone', () => {
    expect(readPlans({}, shadow.table).table).toEqual(shadow.table);
  });
});
