import fc from 'fast-check';
import { expect, test } from 'vitest';
import { credentialOf } from '../../gateway/limiter/credential.ts';
import { decide } from '../../gateway/limiter/decide.ts';
import { FRESH, type KeyRecord, type KeyState } from '../../gateway/limiter/key-record.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { DEFAULT_PLANS, type PlanName, type PlanTable } from '../../gateway/limiter/plans.ts';
import { type DecideAt, type Fleet, runFleet } from '../support/fleets.ts';
import { BEGIN } from '../support/limiters.ts';
import { secretWith } from '../support/secrets.ts';
import { thoroughly } from '../support/thorough.ts';

/** Clients that wait as told are served and never banned, whatever their timing. */

const DIGEST = 'a'.repeat(64);
const CREDENTIAL = credentialOf('', DIGEST);
const ENDLESS = 1_000_000_000;
const LIMITS: Readonly<Record<PlanName, number>> = { free: 60, pro: 300, business: 1_000, enterprise: 2_400 };

/** The embedded limiter's rules for one key. The day limit is endless unless given. */
function embedded(plan: PlanName, { day = ENDLESS, state = FRESH as KeyState } = {}): DecideAt {
  const record: KeyRecord = { plan, name: '', secrets: [secretWith(DIGEST)], createdAt: 0, minute: LIMITS[plan], day };
  const plans: PlanTable = DEFAULT_PLANS;
  let kept = state;
  return (now) => {
    const decided = decide(record, kept, CREDENTIAL, plans, now);
    kept = decided.state ?? kept;
    return decided.verdict as Decision;
  };
}

const EMPTY: KeyState = { ...FRESH, asOf: BEGIN };

const ALONE: Fleet = {
  workers: 1,
  minutes: 5,
  joinSeconds: 0,
  pauseSeconds: 0,
  jitter: 0,
  restartsAMinute: 0,
  seed: 1,
};

const plans = fc.constantFrom<PlanName>('free', 'pro', 'business');

/** Fleets of at most as many workers as the plan allows requests per minute. */
const fleets = plans.chain((plan) =>
  fc.record({
    plan: fc.constant(plan),
    workers: fc.oneof(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: LIMITS[plan] })),
    minutes: fc.constant(plan === 'business' ? 4 : 6),
    joinSeconds: fc.constantFrom(0, 0, 5, 30, 60),
    pauseSeconds: fc.constantFrom(0, 0, 0.2, 5, 40),
    jitter: fc.constantFrom(0, 0.1, 1),
    hurrySeconds: fc.constantFrom(0, 0, 0.2),
    restartsAMinute: fc.nat({ max: Math.floor(LIMITS[plan] / 20) }),
    burst: fc.option(
      fc.record({ atSecond: fc.nat({ max: 200 }), requests: fc.integer({ min: 1, max: 10 * LIMITS[plan] }) }),
      { nil: undefined },
    ),
    seed: fc.nat({ max: 1_000_000 }),
  }),
);

const RUNS = thoroughly(800, 20);

test('a fleet that respects Retry-After is never banned, whatever its timing', async () => {
  let minutes = 0;
  await fc.assert(
    fc.asyncProperty(fleets, async ({ plan, ...fleet }) => {
      const { banned } = await runFleet(embedded(plan), BEGIN, fleet);
      minutes += fleet.minutes;
      expect(banned).toBe(0);
    }),
    { numRuns: RUNS },
  );
  expect(minutes).toBeGreaterThanOrEqual(RUNS * 4);
}, 600_000);

const BURST_OF_600 = { workers: 60, minutes: 6, pauseSeconds: 40, restartsAMinute: 2 };

test.for<Omit<Fleet, 'burst'> & { atSecond: number }>([
  { ...BURST_OF_600, joinSeconds: 60, pauseSeconds: 0, jitter: 1, seed: 273, atSecond: 2 },
  { ...BURST_OF_600, joinSeconds: 0, jitter: 0, seed: 1_424, atSecond: 113 },
  { ...BURST_OF_600, joinSeconds: 50, pauseSeconds: 0.2, jitter: 1, seed: 3_811, atSecond: 55 },
  { ...BURST_OF_600, joinSeconds: 50, jitter: 0.1, restartsAMinute: 1, seed: 8_763, atSecond: 161 },
])('a burst at $atSecond s takes no place of those who were told to come later', async ({ atSecond, ...fleet }) => {
  const { banned } = await runFleet(embedded('free'), BEGIN, { ...fleet, burst: { atSecond, requests: 600 } });
  expect(banned).toBe(0);
});

test('with an empty day bucket the n-th waiter is told the time of n day tokens, and nobody who waits is banned', async () => {
  const emptyDay = () => embedded('free', { day: 1_000, state: EMPTY });
  const { told } = await runFleet(emptyDay(), BEGIN, { ...ALONE, workers: 10, minutes: 1 });
  expect(told).toEqual(Array.from({ length: 10 }, (_, at) => Math.ceil((at + 1) * 86.4)));
  const day = await runFleet(emptyDay(), BEGIN, { ...ALONE, workers: 10, minutes: 300 });
  expect(day).toMatchObject({ banned: 0, again: 0 });
  expect(day.admitted).toBeGreaterThan((0.95 * (300 * 60)) / 86.4);
});
