import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { full, refill, ticksUntilFull, ticksUntilNextToken, ticksUntilToken } from '../../gateway/limiter/bucket.ts';
import type { Keys } from '../../gateway/stores/keys.ts';
import {
  bothLimiters,
  burst,
  decision,
  type LimiterUnderTest,
  memoryUnderTest,
  redisUnderTest,
  SECOND,
} from '../support/limiters.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { emptyDatabase } from '../support/redis-database.ts';

/** Rules that the random histories of model.test.ts rarely reach: long bans, claims, restores, and refill times. */

const { url } = await emptyDatabase();
const DAY = 86_400 * SECOND;

const TODAY = 20_000;

describe.for(bothLimiters(url))('with %s', ([, open]) => {
  test('a ban expires on time, and the next one within a day lasts twice as long, up to a day', async () => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 30_000 });
    const credential = await under.createKey();
    const lengths: number[] = [];
    for (const pause of [0, DAY - 120 * SECOND, 0, 0, DAY]) {
      under.now += pause;
      expect(await burst(under, credential, 2)).toBe('admitted×1 refused×1');
      const ban = await decision(under, credential);
      lengths.push((ban.bannedUntil - under.now) / SECOND);
      under.now = ban.bannedUntil - 1;
      expect((await decision(under, credential)).outcome).toBe('banned');
      under.now = ban.bannedUntil;
    }
    expect(lengths).toEqual([30_000, 60_000, 86_400, 86_400, 30_000]);
  });

  test('a first ban of more than a day lasts as long as its plan says', async () => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 200_000 });
    const credential = await under.createKey();
    await burst(under, credential, 2);
    expect((await decision(under, credential)).bannedUntil - under.now).toBe(200_000 * SECOND);
  });

  test("an operator's ban does not resume a series of bans that has ended", async () => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 300 });
    const credential = await under.createKey();
    const ban = async () => {
      await burst(under, credential, 2);
      const { bannedUntil } = await decision(under, credential);
      const length = (bannedUntil - under.now) / SECOND;
      under.now = bannedUntil;
      return length;
    };
    const banByHand = async () => {
      const until = under.now + 60 * SECOND;
      await under.keys.change(credential.id, () => ({ ban: { until, text: 'by hand' } }));
      expect((await decision(under, credential)).bannedUntil).toBe(until);
      under.now = until;
    };
    expect([await ban(), await ban(), await ban()]).toEqual([300, 600, 1_200]);
    under.now += 3 * DAY;
    await banByHand();
    expect([await ban(), await ban()]).toEqual([300, 600]);
    // A series that has not ended continues.
    await banByHand();
    expect(await ban()).toBe(1_200);
  });

  test('clients in line are not banned for their strikes after their limit was more than halved', async () => {
    for (const [minute, isBanned] of [
      [10, true],
      [9, false],
    ] as const) {
      const under = await open();
      under.setPlan('free', { minute: 20, ban_after: 5, ban_grace_seconds: 0 });
      const credential = await under.createKey();
      await burst(under, credential, 25);
      under.setPlan('free', { minute });
      const outcomes = await burst(under, credential, 100);
      expect([minute, outcomes.includes('banned')]).toEqual([minute, isBanned]);
    }
  });

  test('each key event can be claimed once a day', async () => {
    const under = await open();
    const { keys } = under;
    const [{ id }, { id: other }] = [await under.createKey(), await under.createKey()];
    const claims = Array.from({ length: 20 }, () => keys.claim(id, 'day_80', TODAY, randomUUID()));
    expect((await Promise.all(claims)).filter((isClaimed) => isClaimed)).toEqual([true]);
    expect(await keys.claim(id, 'day_100', TODAY, randomUUID())).toBe(true);
    expect(await keys.claim(other, 'day_80', TODAY, randomUUID())).toBe(true);
    expect(await keys.claim(id, 'day_80', TODAY + 1, randomUUID())).toBe(true);
  });

  test('a claim that is made after midnight for the previous day does not undo the claim of the new day', async () => {
    const under = await open();
    const { id } = await under.createKey();
    expect(await under.keys.claim(id, 'banned', TODAY + 1, randomUUID())).toBe(true);
    expect(await under.keys.claim(id, 'banned', TODAY, randomUUID())).toBe(false);
    expect(await under.keys.claim(id, 'banned', TODAY + 1, randomUUID())).toBe(false);
  });
});

const backedUp = async (keys: Keys) => (await keys.export({ after: undefined, limit: 10 })).keys;

test("a restore brings back a key's line, strikes and ban, with the embedded limiter and with Redis", async () => {
  const { url: empty } = await emptyDatabase();
  const [first, second, shared] = [await memoryUnderTest(), await memoryUnderTest(), await redisUnderTest(empty)];
  for (const under of [first, second, shared]) {
    under.setPlan('free', { minute: 5, ban_after: 3, ban_grace_seconds: 0, ban_seconds: 600 });
    under.setPlan('pro', { minute: 5, ban_after: 5 });
  }
  const waiting = await first.createKey({ plan: 'pro', createdAt: 0 });
  const banned = await first.createKey();
  await burst(first, waiting, 8);
  first.now += 7 * SECOND;
  await burst(first, waiting, 8);
  expect(await burst(first, banned, 12)).toContain('banned');
  const backup = await backedUp(first.keys);
  expect(backup.map(({ fields }) => Object.keys(fields))).toEqual([
    expect.arrayContaining(['left', 'refusals', 'used']),
    expect.arrayContaining(['left', 'banned_until', 'bans', 'ban_decided']),
  ]);

  expect(await Promise.all(backup.map((key) => shared.keys.restore(key)))).toEqual(['restored', 'restored']);
  expect(await Promise.all((await backedUp(shared.keys)).map((key) => second.keys.restore(key)))).toEqual([
    'restored',
    'restored',
  ]);
  expect(await backedUp(second.keys)).toEqual(backup);
  const now = first.now + SECOND;
  const decided = async (under: LimiterUnderTest) => {
    under.now = now;
    return [await under.limiter.decide(waiting), await under.limiter.decide(banned)];
  };
  const verdicts = await decided(first);
  expect(verdicts.map(({ outcome }) => outcome)).toEqual(['refused', 'banned']);
  for (const under of [second, shared]) expect(await decided(under)).toMatchObject(verdicts);
});

const limits = fc.integer({ min: 1, max: 1_000_000_000 });
const windows = fc.oneof(fc.constantFrom(60_000_000, DAY), fc.integer({ min: 1, max: DAY }));

test('the computed times of the next token and of the full bucket are the earliest possible', () => {
  const cases = fc.tuple(limits, windows, fc.double({ min: 0, max: 1, noNaN: true }));
  fc.assert(
    fc.property(cases, ([limit, window, share]) => {
      const level = { tokens: 0, fraction: Math.floor(share * (window - 1)) };
      const wait = ticksUntilToken(level, limit, window);
      expect(refill(level, limit, window, wait).tokens).toBeGreaterThanOrEqual(1);
      expect(refill(level, limit, window, wait - 1).tokens).toBe(0);
      const untilFull = ticksUntilFull(level, limit, window);
      expect(refill(level, limit, window, untilFull)).toEqual(full(limit));
      expect(refill(level, limit, window, untilFull - 1)).not.toEqual(full(limit));
    }),
    { numRuns: 5_000 },
  );
});

test('a full bucket has no wait', () => {
  expect(ticksUntilToken(full(3), 3, DAY)).toBe(0);
  expect(ticksUntilNextToken(full(3), 3, DAY)).toBe(0);
  expect(ticksUntilFull(full(3), 3, DAY)).toBe(0);
});

/** Prints by how many microseconds the clock is behind the machine's in a process that has just started. */
const LAG = `
  const { monotonicClock } = await import('${ROOT}/gateway/limiter/bucket.ts');
  const lag = () => Number(process.hrtime.bigint() / 1_000n) - monotonicClock();
  process.stdout.write(String(Math.max(...Array.from({ length: 1_000 }, lag))));`;

test('processes that have just started agree on the time, because they take over levels from each other', async () => {
  const lags = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const { out } = await startProcess(process.execPath, ['--input-type=module', '--eval', LAG], {}).ended;
      return Number(out);
    }),
  );
  for (const lag of lags) expect(Math.abs(lag)).toBeLessThan(200);
});
