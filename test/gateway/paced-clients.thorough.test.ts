import fc from 'fast-check';
import { parseRateLimit } from 'ratelimit-header-parser';
import { expect, test } from 'vitest';
import { full, SECOND } from '../../gateway/limiter/bucket.ts';
import { credentialOf } from '../../gateway/limiter/credential.ts';
import { decide } from '../../gateway/limiter/decide.ts';
import { FRESH, type KeyRecord, type KeyState } from '../../gateway/limiter/key-record.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import type { Plan } from '../../gateway/limiter/plans.ts';
import { pairsOf } from '../../shared/lists.ts';
import { send } from '../support/http.ts';
import { limitHeaders } from '../support/limit-headers.ts';
import { secretWith } from '../support/secrets.ts';
import { startStack } from '../support/stack.ts';

/** Tests clients that pace themselves by the RateLimit fields, in simulated time. */

const DAY_SECONDS = 86_400;
const START = 1_795_262_400 * SECOND;

interface Key {
  readonly minute: number;
  readonly day: number;
  /** The fraction of each bucket, from 0 to 1, that is left when the client begins. At least one token is left. */
  readonly left: number;
}

interface LeftInBucket {
  readonly r: number;
  readonly t: number;
}

const fieldsOf = (decision: Decision): Map<string, string> =>
  new Map(pairsOf(limitHeaders(decision, true)).map(([name, value]) => [name, value]));

function limitsIn(field: string): LeftInBucket[] {
  return [...field.matchAll(/;r=(\d+);t=(\d+)/g)].map(([, r, t]) => ({ r: Number(r), t: Number(t) }));
}

/** Returns the pause in seconds that uses at most `r` tokens in `t` seconds for every limit, or `t` if none is left. */
const pace = (limits: readonly LeftInBucket[]): number => Math.max(...limits.map(({ r, t }) => (r === 0 ? t : t / r)));

function stateOf({ minute, day, left }: Key): KeyState {
  const level = (limit: number) => ({ ...full(limit), tokens: Math.max(1, Math.floor(left * limit)) });
  return { ...FRESH, minute: level(minute), day: level(day), asOf: START };
}

/**
 * Simulates a client that paces itself for `seconds`, and counts what is admitted in each half. In the first, `t` in
 * whole seconds is coarse while an emptied bucket holds few seconds' tokens, so that some of them stay in it.
 */
function paced(key: Key, seconds: number): { first: number; second: number; refused: number } {
  const plan = { minute: key.minute, day: key.day, ban_seconds: 300 } as Plan;
  const record: KeyRecord = { plan: 'free', name: '', secrets: [secretWith('x')], createdAt: 0 };
  let state = stateOf(key);
  const seen = { first: 0, second: 0, refused: 0 };
  let now = START;
  while (now < START + seconds * SECOND) {
    const { verdict, state: after = state } = decide(record, state, credentialOf('', 'x'), plan, now);
    state = after;
    const decision = verdict as Decision;
    const half = now < START + (seconds / 2) * SECOND ? 'first' : 'second';
    seen[decision.outcome === 'admitted' ? half : 'refused'] += 1;
    now += Math.ceil(pace(limitsIn(fieldsOf(decision).get('RateLimit') ?? '')) * SECOND);
  }
  return seen;
}

/** Returns the number of requests that the slower limit refills in this time. */
const allowance = ({ minute, day }: Key, seconds: number): number =>
  Math.min((minute / 60) * seconds, (day / DAY_SECONDS) * seconds);

/** The limits of plans, pairs of limits where only the minute limit matters, and a pair where both matter equally. */
const EXAMPLES = [
  { minute: 60, day: 1_000 },
  { minute: 300, day: 10_000 },
  { minute: 1_000, day: 100_000 },
  { minute: 60, day: 1_000_000 },
  { minute: 6_000, day: 100_000_000 },
  { minute: 2, day: 1_000_000 },
  { minute: 7, day: 1_000_000 },
  { minute: 2_502, day: 3_606_592 },
].flatMap((limits) => [1, 0.5, 0.01, 0].map((left): [Key] => [{ ...limits, left }]));

test('a client that paces itself by r and t is never refused and gets its whole allowance, whatever its limits and initial levels', () => {
  const key = fc.record({
    minute: fc.oneof(fc.integer({ min: 1, max: 120 }), fc.integer({ min: 1, max: 3_000 })),
    day: fc.integer({ min: 20, max: 10_000_000 }),
    left: fc.double({ min: 0, max: 1, noNaN: true }),
  });
  const isPaced = fc.property(key, (one) => {
    const window = one.minute * 1_440 < one.day ? 60 : DAY_SECONDS;
    const seconds = Math.max(30 * window, (60 * 30 * window) / allowance(one, window));
    const shortened = Math.min(seconds, (10_000 / allowance(one, window)) * window);
    const { first, second, refused } = paced(one, 2 * shortened);
    expect(refused).toBe(0);
    expect(first).toBeGreaterThan(0.9 * allowance(one, shortened));
    expect(second).toBeGreaterThan(0.95 * allowance(one, shortened));
  });
  fc.assert(isPaced, { numRuns: 30 + EXAMPLES.length, examples: EXAMPLES });
});

test('r/t never exceeds the rate in RateLimit-Policy', () => {
  const levels = fc.record({
    limit: fc.integer({ min: 1, max: 1_000_000_000 }),
    part: fc.double({ min: 0, max: 1, noNaN: true }),
  });
  fc.assert(
    fc.property(levels, ({ limit, part }) => {
      const bucket = {
        name: 'day',
        limit,
        window: DAY_SECONDS * SECOND,
        tokens: Math.floor(limit * part),
        fraction: 0,
      } as const;
      const decision = { outcome: 'admitted', now: START, buckets: [bucket], bannedUntil: 0 } as unknown as Decision;
      for (const { r, t } of limitsIn(fieldsOf(decision).get('RateLimit') ?? '')) {
        expect(t).toBeGreaterThanOrEqual(1);
        expect(BigInt(r) * BigInt(DAY_SECONDS)).toBeLessThanOrEqual(BigInt(limit) * BigInt(t));
      }
    }),
  );
});

test('an HTTP client that paces itself by r and t is never refused', async () => {
  const stack = await startStack();
  const key = await stack.issueKey({ minute: 1_200, day: 1_000_000 });
  const end = Date.now() + 2_000;
  let sent = 0;
  for (; Date.now() < end; sent++) {
    const { status, headers } = await send(`${stack.gateway}/v1/pets`, { key });
    expect(status).toBe(200);
    await new Promise((resolve) => setTimeout(resolve, pace(limitsIn(String(headers.ratelimit))) * 1_000));
  }
  expect(sent).toBeGreaterThan(2);
});

test('a parser for an earlier draft reads the same limits from RateLimit as from X-RateLimit-*', async () => {
  const stack = await startStack();
  const key = await stack.issueKey({ minute: 3, day: 1_000 });
  for (let sent = 0; sent < 5; sent++) {
    const { status, headers } = await send(`${stack.gateway}/v1/pets`, { key });
    const { ratelimit: _, 'ratelimit-policy': __, ...classic } = headers as Record<string, string>;
    const [modern, known] = [parseRateLimit(headers as Record<string, string>), parseRateLimit(classic)];
    expect(modern).toMatchObject({ limit: 3, remaining: Math.max(0, 2 - sent), used: Math.min(3, sent + 1) });
    expect({ ...modern, reset: 0 }).toEqual({ ...known, reset: 0 });
    expect(Math.abs(Number(modern?.reset) - Number(known?.reset))).toBeLessThan(2_000);
    if (status === 429) expect(headers.ratelimit).toMatch(`"minute";r=0;t=${headers['retry-after']};store-limit=3`);
  }
});
