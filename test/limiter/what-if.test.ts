import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MINUTE, ticksUntilToken } from '../../gateway/limiter/bucket.ts';
import type { Credential } from '../../gateway/limiter/credential.ts';
import { bucketsAt } from '../../gateway/limiter/decide.ts';
import { leastRefused } from '../../gateway/limiter/estimates.ts';
import { countsOf, type KeyEntry } from '../../gateway/limiter/key-record.ts';
import { BEGIN, type LimiterUnderTest, memoryUnderTest, redisUnderTest } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { thoroughly } from '../support/thorough.ts';

const { url } = await emptyDatabase();
const START = BEGIN - (BEGIN % MINUTE);

/** For each minute of a period, the times of its requests, in microseconds. */
const traffic = fc.array(
  fc.array(fc.oneof(fc.integer({ min: 0, max: MINUTE - 1 }), fc.constantFrom(0, MINUTE - 1)), { maxLength: 25 }),
  { minLength: 1, maxLength: 12 },
);
const limits = fc.record({ minute: fc.integer({ min: 1, max: 12 }), day: fc.integer({ min: 1, max: 150 }) });
type Tried = typeof limits extends fc.Arbitrary<infer T> ? T : never;

/** A key with these limits but without bans, because a ban would refuse more requests. */
async function keyUnder(under: LimiterUnderTest, tried: Tried): Promise<Credential> {
  under.now = START;
  under.setPlan('free', { ...tried, ban_after: 1_000_000_000 });
  return await under.createKey();
}

/** The number of requests that the limiter refuses if they are sent at their real times. */
async function replay(under: LimiterUnderTest, credential: Credential, minutes: readonly number[][]): Promise<number> {
  let refused = 0;
  for (const [minute, moments] of minutes.entries()) {
    for (const moment of moments.toSorted((a, b) => a - b)) {
      under.now = START + minute * MINUTE + moment;
      if ((await under.limiter.decide(credential)).outcome === 'refused') refused += 1;
    }
  }
  return refused;
}

/**
 * The number of requests that the limiter refuses in the best case: each request is sent when there is a token, or else
 * in the last tick of its minute.
 */
async function replayKindly(
  under: LimiterUnderTest,
  credential: Credential,
  counts: readonly number[],
): Promise<number> {
  let refused = 0;
  for (const [minute, count] of counts.entries()) {
    const [first, last] = [START + minute * MINUTE, START + (minute + 1) * MINUTE - 1];
    under.now = first;
    for (let sent = 0; sent < count; sent++) {
      under.now = Math.min(last, under.now + (await ticksToWait(under, credential)));
      if ((await under.limiter.decide(credential)).outcome === 'refused') refused += 1;
    }
  }
  return refused;
}

async function ticksToWait(under: LimiterUnderTest, { id }: Credential): Promise<number> {
  const entry = (await under.keys.get(id)) as KeyEntry;
  const buckets = bucketsAt(entry.record, entry, under.plans.free, under.now) ?? [];
  return Math.max(...buckets.map((bucket) => ticksUntilToken(bucket, bucket.limit, bucket.window)));
}

describe.for([
  ['the embedded limiter', memoryUnderTest, thoroughly(100, 25)],
  ['decide.lua', () => redisUnderTest(url), thoroughly(60, 15)],
] as const)('%s', ([, open, numRuns]) => {
  test('refuses at least as many requests as a trial reports, and exactly as many in the best case', async () => {
    const under = await open();
    let decided = 0;
    await fc.assert(
      fc.asyncProperty(traffic, limits, async (minutes, tried) => {
        const seen = await keyUnder(under, { minute: 1_000, day: 1_000_000 });
        await replay(under, seen, minutes);
        const entry = (await under.keys.get(seen.id)) as KeyEntry;
        const least = leastRefused(countsOf(entry.usage.minutes, entry), tried);
        decided += least;

        expect(await replay(under, await keyUnder(under, tried), minutes)).toBeGreaterThanOrEqual(least);
        const counts = minutes.map((moments) => moments.length);
        const kindly = await replayKindly(under, await keyUnder(under, tried), counts);
        expect(kindly).toBe(least);
      }),
      { numRuns },
    );
    expect(decided).toBeGreaterThan(numRuns);
  });
});

test.for([
  [
    'unordered counts',
    [
      [2, 11],
      [0, 19],
      [1, 10],
    ],
    { minute: 10, day: 1_000 },
    1,
  ],
  ['nothing', [], { minute: 1, day: 1 }, 0],
  ['the largest numbers', [[0, 1e15]], { minute: 1_000_000_000, day: 1_000_000_000 }, 1e15 - 1_000_694_444],
] as const)('a trial of %s, %j under %j, reports %i refusals', ([, counts, tried, least]) => {
  const given = counts.map(([at, admitted]) => ({ at, admitted, refused: 0 }));
  expect(leastRefused(given, tried)).toBe(least);
});
