import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { credentialOf } from '../../gateway/limiter/credential.ts';
import { decide } from '../../gateway/limiter/decide.ts';
import { isTooSmall } from '../../gateway/limiter/estimates.ts';
import { FRESH, type KeyRecord, type KeyState } from '../../gateway/limiter/key-record.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import { retryAfterSeconds } from '../../gateway/pipeline/client-http.ts';
import { type DecideAt, type Fleet, generator, runFleet, secondsToBan } from '../support/fleets.ts';
import { BEGIN, SECOND } from '../support/limiters.ts';
import { secretWith } from '../support/secrets.ts';
import { thoroughly } from '../support/thorough.ts';

/**
 * Tests how the refusal rules treat each kind of client, in virtual time. No `ban_after` is set, so a key has five
 * times as many strikes as its minute limit.
 */

const DIGEST = 'a'.repeat(64);
const CREDENTIAL = credentialOf('', DIGEST);
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
/** Empty buckets. Those of a new or idle key would be full. */
const EMPTY: KeyState = { ...FRESH, asOf: BEGIN };

function simulatedKey(minute: number, state = FRESH, day = 1_000_000_000) {
  const secrets = [secretWith(DIGEST)];
  const record: KeyRecord = { plan: 'free', name: '', secrets, createdAt: 0, minute, day };
  let kept = state;
  const decideAt = (now: number) => {
    const decided = decide(record, kept, CREDENTIAL, DEFAULT_PLANS[record.plan], now);
    kept = decided.state ?? kept;
    return decided.verdict as Decision;
  };
  return { decideAt, state: () => kept };
}

const keyOf = (...about: Parameters<typeof simulatedKey>): DecideAt => simulatedKey(...about).decideAt;

/** Times of requests at an even rate. */
function* evenly(perMinute: number, forTicks: number): Generator<number> {
  for (let sent = 0; (sent * MINUTE) / perMinute < forTicks; sent++)
    yield BEGIN + Math.floor((sent * MINUTE) / perMinute);
}

/** Times of repeated bursts. */
function* bursts(size: number, everySeconds: number, forTicks: number): Generator<number> {
  for (let at = 0; at < forTicks; at += everySeconds * SECOND) for (let sent = 0; sent < size; sent++) yield BEGIN + at;
}

const STEADY = { joinSeconds: 0, pauseSeconds: 0, jitter: 0, restartsAMinute: 0, seed: 1 };
const HABITS = [{}, { clockErrorSeconds: 0.9 }, { hurrySeconds: 0.9 }, { jitter: 0.1 }];
const FLEETS = [60, 300, 1_000].flatMap((limit) =>
  [2, 3, 5, 10, 30, 60, 100, 200, 300, 1_000].flatMap((workers) => HABITS.map((habit) => ({ limit, workers, habit }))),
);
const fleets = FLEETS.filter((_, at) => at % thoroughly(7, 13) === 0);

describe('fleets whose workers respect Retry-After', () => {
  test.for(fleets)(
    'are never banned and get the full rate: $workers workers with a limit of $limit a minute, $habit',
    async ({ limit, workers, habit }) => {
      const minutes = 20;
      const fleet = { ...STEADY, workers, minutes, ...habit };
      const { banned, admitted } = await runFleet(keyOf(limit, EMPTY), BEGIN, fleet);
      expect(banned).toBe(0);
      expect(admitted / (minutes * limit)).toBeGreaterThanOrEqual(0.983);
      expect(admitted).toBeLessThanOrEqual(minutes * limit);
    },
  );

  /** Each fleet has at most as many workers as its limit of requests per minute. */
  const anyFleet = fc.constantFrom(60, 300, 1_000).chain((limit) =>
    fc.record({
      limit: fc.constant(limit),
      workers: fc.oneof(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: limit })),
      minutes: fc.constant(limit === 1_000 ? 4 : 6),
      joinSeconds: fc.constantFrom(0, 0, 5, 30, 60),
      pauseSeconds: fc.constantFrom(0, 0, 0.2, 5, 40),
      jitter: fc.constantFrom(0, 0.1, 1),
      hurrySeconds: fc.constantFrom(0, 0, 0.2),
      restartsAMinute: fc.nat({ max: Math.floor(limit / 20) }),
      burst: fc.option(
        fc.record({ atSecond: fc.nat({ max: 200 }), requests: fc.integer({ min: 1, max: 10 * limit }) }),
        { nil: undefined },
      ),
      seed: fc.nat({ max: 1_000_000 }),
    }),
  );

  test('are never banned, however workers join, pause and restart, even after a burst', {
    timeout: 600_000,
  }, async () => {
    await fc.assert(
      fc.asyncProperty(anyFleet, async ({ limit, ...fleet }) => {
        expect((await runFleet(keyOf(limit), BEGIN, fleet)).banned).toBe(0);
      }),
      { numRuns: thoroughly(80, 20) },
    );
  });

  test.for<Partial<Fleet> & { seed: number; atSecond: number }>([
    { joinSeconds: 60, pauseSeconds: 0, jitter: 1, seed: 273, atSecond: 2 },
    { joinSeconds: 0, jitter: 0, seed: 1_424, atSecond: 113 },
    { joinSeconds: 50, pauseSeconds: 0.2, jitter: 1, seed: 3_811, atSecond: 55 },
    { joinSeconds: 50, jitter: 0.1, restartsAMinute: 1, seed: 8_763, atSecond: 161 },
  ])('are not banned after a burst at $atSecond s', async ({ atSecond, ...about }) => {
    const fleet = { ...STEADY, workers: 60, minutes: 6, pauseSeconds: 40, restartsAMinute: 2, ...about };
    const burst = { atSecond, requests: 600 };
    expect((await runFleet(keyOf(60), BEGIN, { ...fleet, burst })).banned).toBe(0);
  });

  test('wait until the day limit has refilled when it is used up', async () => {
    const emptyDay = () => keyOf(60, EMPTY, 1_000);
    const { retryAfters } = await runFleet(emptyDay(), BEGIN, { ...STEADY, workers: 10, minutes: 1 });
    expect(retryAfters).toEqual(Array.from({ length: 10 }, (_, at) => Math.ceil((at + 1) * 86.4)));
    const day = await runFleet(emptyDay(), BEGIN, { ...STEADY, workers: 10, minutes: 300 });
    expect(day).toMatchObject({ banned: 0, again: 0 });
    expect(day.admitted).toBeGreaterThan((0.95 * (300 * 60)) / 86.4);
  });
});

const HOURS = 2;

/**
 * Runs an app of 200 users, each with one request at a time, at this many times its limit of 60 a minute.
 * @param again returns the seconds until a retry, or undefined to give up
 */
async function runApp(
  times: number,
  again: (retryAfter: number, refusals: number, random: () => number) => number | undefined,
) {
  const [users, limit] = [200, 60];
  const decideAt = keyOf(limit);
  const random = generator(7);
  const pause = (users * MINUTE) / (times * limit);
  const think = () => Math.ceil(-Math.log(1 - random()) * pause);
  const waiting = Array.from({ length: users }, () => ({ at: BEGIN + think(), refusals: 0 }));
  const outcomes = { admitted: 0, refused: 0, banned: 0 };
  for (;;) {
    const user = waiting.reduce((first, other) => (other.at < first.at ? other : first));
    if (user.at > BEGIN + HOURS * HOUR) break;
    const decision = await decideAt(user.at);
    outcomes[decision.outcome as keyof typeof outcomes] += 1;
    const isServed = decision.outcome === 'admitted';
    user.refusals = isServed ? 0 : user.refusals + 1;
    const wait = isServed ? undefined : again(retryAfterSeconds(decision) as number, user.refusals, random);
    if (wait === undefined) user.refusals = 0;
    user.at += wait === undefined ? think() : Math.ceil((wait + 0.02 + 0.01 * random()) * SECOND);
  }
  return { ...outcomes, share: outcomes.admitted / (HOURS * 60 * limit) };
}

describe('apps of 200 users', () => {
  test.for([1.1, 1.5, 2])('that respect Retry-After are never banned at %d times the limit', async (times) => {
    const { banned, share } = await runApp(times, (retryAfter) => retryAfter);
    expect(banned).toBe(0);
    expect(share).toBeGreaterThan(0.98);
  });

  test.for([
    ['wait for a random part of 0.1 s, doubled up to 20 s, three times (AWS)', 3, 0.1, 20],
    ['wait 0.5 s, doubled up to 8 s, twice (OpenAI, Stripe)', 2, 0.5, 8],
    ['press reload after a second, five times', 5, 1, 1],
  ] as const)('that %s are never banned at twice the limit', async ([, tries, first, most]) => {
    const { banned, share } = await runApp(2, (_, refusals, random) =>
      refusals > tries ? undefined : Math.min(most, first * 2 ** (refusals - 1)) * (first === 1 ? 1 : random()),
    );
    expect(banned).toBe(0);
    expect(share).toBeGreaterThan(0.98);
  });
});

describe('a client that ignores Retry-After', () => {
  test('is never banned and gets the full rate at up to nine times its limit', async () => {
    const limit = 60;
    for (const times of [1.1, 2, 8, 9]) {
      const outcomes = { admitted: 0, refused: 0, banned: 0 };
      const decideAt = keyOf(limit, EMPTY);
      for (const at of evenly(times * limit, HOUR))
        outcomes[(await decideAt(at)).outcome as keyof typeof outcomes] += 1;
      expect(outcomes.banned, `${times} times`).toBe(0);
      expect(outcomes.admitted).toBeGreaterThanOrEqual(60 * limit - 1);
    }
  });

  // At n times the limit, the bucket lasts 60/(n - 1) s. From then on, n - 1 of n requests are refused while eight
  // strikes expire, so the strikes reach five times the minute limit after 5·60/(n - 9) s. The ban follows 30 s later.
  test.for([10, 12, 20, 100, 1_000])(
    'is banned at the time that the rule predicts, at %d times the limit',
    async (times) => {
      for (const limit of [60, 300, 1_000].filter((one) => one * times <= thoroughly(300_000, 100_000))) {
        const expected = 60 / (times - 1) + 300 / (times - 9) + 30;
        const seconds = await secondsToBan(keyOf(limit), evenly(times * limit, HOUR));
        expect(Math.abs((seconds ?? 0) - expected), `${limit} a minute: ${seconds} s`).toBeLessThan(1.5);
      }
    },
  );

  test.for([
    [10, 336],
    [100, 34],
  ] as const)('that sends %d times 60 requests a minute is banned after %d s', async ([times, expected]) => {
    expect(Math.round((await secondsToBan(keyOf(60), evenly(times * 60, HOUR))) ?? 0)).toBe(expected);
  });

  test.for([
    [5, 35],
    [10, 40],
    [30, 120],
  ] as const)(
    'that sends bursts of 300 requests every %d s with a limit of 60 a minute is banned after %d s',
    async ([every, expected]) => {
      expect(await secondsToBan(keyOf(60), bursts(300, every, HOUR))).toBe(expected);
    },
  );

  test.for([300, 3_000, 30_000].slice(0, thoroughly(3, 2)))(
    'that sends a burst of %d requests every minute is never banned',
    async (size) => {
      expect(await secondsToBan(keyOf(60), bursts(size, 60, 20 * MINUTE))).toBeUndefined();
    },
  );
});

/**
 * Simulates workers that send requests without a pause and respect Retry-After.
 * @param isAtWork whether workers continue this many minutes after the start
 * @returns for each minute, whether the limit is reported as too low, and the length of the line in seconds
 */
function run(workers: number, minutes: number, isAtWork = (_sinceMinutes: number) => true) {
  const key = simulatedKey(60);
  const next = Array.from({ length: workers }, (_, at) => BEGIN + at * 1_000);
  const seen: { isSaid: boolean; seconds: number }[] = [];
  for (let minute = 1; minute <= minutes; minute++) {
    for (const end = BEGIN + minute * MINUTE; ; ) {
      const first = next.indexOf(Math.min(...next));
      const now = next[first] ?? Infinity;
      if (now >= end) break;
      const { outcome, retryAt = 0 } = key.decideAt(now);
      const isServed = outcome === 'admitted' && !isAtWork((now - BEGIN) / MINUTE);
      next[first] = isServed ? Infinity : outcome === 'admitted' ? now + SECOND / 10 : retryAt;
    }
    const at = BEGIN + minute * MINUTE;
    const { lineUntil } = key.state().refusals;
    seen.push({ isSaid: isTooSmall(key.state(), at), seconds: Math.max(0, (lineUntil - at) / SECOND) });
  }
  return seen;
}

test('the limit of a key with a line of three minutes is reported as too low after ten minutes, not before', () => {
  const seen = run(240, 30);
  const said = seen.map(({ isSaid }) => isSaid);
  expect(said.slice(0, 10)).toEqual(Array(10).fill(false));
  expect(said.slice(12)).toEqual(Array(18).fill(true));
  expect(seen.slice(1).every(({ seconds }) => seconds > 150)).toBe(true);
});

test('a key with more clients than places in its line is reported', () => {
  expect(run(1_500, 14).at(-1)).toMatchObject({ isSaid: true });
});

test('a key with a short line, a single burst, or clients that have stopped is not reported', () => {
  expect(run(45, 30).filter(({ isSaid }) => isSaid)).toEqual([]);
  expect(run(500, 20, () => false).filter(({ isSaid }) => isSaid)).toEqual([]);
  const gone = run(240, 30, (minutes) => minutes < 20);
  expect(gone.map(({ isSaid }) => isSaid).slice(17, 20)).toEqual([true, true, true]);
  expect(gone.at(-1)).toEqual({ isSaid: false, seconds: 0 });
});
