import { describe, expect, test } from 'vitest';
import { judge } from '../support/allowance-checker.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { inTurn } from '../support/in-turn.ts';
import type { Answered } from '../support/paced-load.ts';
import {
  BAN_AFTER,
  type Decided,
  type Observation,
  observe,
  type RedisFault,
  startFailing,
  TIGHT,
} from '../support/redis-fault.ts';
import { flushedScripts, HALF_OPEN, OUTAGES } from '../support/redis-outages.ts';
import { quantile } from '../support/statistics.ts';

/** Tests the gateway's guarantees during each Redis fault, under load and with real processes. */

/** The gateway's deadline, and the delay that a busy machine may add. */
const DEADLINE_MS = 250;
const NOISE_MS = 400;
/** The kernel may slew the clock of Redis, so that it runs faster than that of this test by up to a thousandth. */
const MINUTE_MS = 60_000 * 0.999;
/** Above the median latency of a healthy gateway, unless the machine is overloaded. */
const USUAL_MS = 10;

const core = await listeningCore();
/** Observes these faults, one after another, on one gateway. */
async function observeAll(faults: readonly RedisFault[], settings: Record<string, string> = {}) {
  const failing = await startFailing(core.url, settings);
  return await inTurn(faults, 1, async (fault) => ({ name: fault.name, seen: await observe(fault, failing) }));
}

const faults = [...OUTAGES, HALF_OPEN];
const third = Math.ceil(faults.length / 3);
const observed = await inTurn([0, 1, 2], 3, (at) => observeAll(faults.slice(at * third, (at + 1) * third)));
const outages = observed.flat();
type Observed = (typeof outages)[number];
const halfOpen = outages.pop() as Observed;
// This long deadline is met even on a busy machine, so any local decision is caused by the fault.
const [flushed] = await observeAll([flushedScripts(100)], { REDIS_TIMEOUT_MS: '2000' });

const sentFrom =
  (from: number, to = Infinity) =>
  (answer: Decided) =>
    answer.sentAt >= from && answer.sentAt < to;
const codesOf = (answers: readonly Decided[]) =>
  new Set(answers.map(({ json }) => (json as { code?: string }).code ?? 'none'));
const inMode = (mode: Decided['mode']) => (answer: Decided) => answer.mode === mode;
const admitted = (answer: Decided) => answer.admitted;

/** How many times slower than usual the machine is, at least 1. Time limits are multiplied by this factor. */
function strainOf({ roomy, causedAt }: Observation): number {
  return Math.max(1, waitOf(roomy.filter(sentFrom(0, causedAt)), 0.5) / USUAL_MS);
}

/** The time from `from` until the first request is sent on which Redis decides again. */
function sharedAgainAfter({ roomy }: Observation, from: number): number {
  return (roomy.filter(sentFrom(from)).find(inMode('shared'))?.sentAt ?? Infinity) - from;
}

const waitOf = (answers: readonly Decided[], share: number): number =>
  quantile(
    answers.map(({ ms }) => ms),
    share,
  );

/** Expects that all admitted requests were charged, except those with an unknown outcome, and none twice. */
function expectNothingTwice(
  { unknown }: Observation,
  answers: readonly Decided[],
  hash: Record<string, string>,
  sent: number,
): void {
  expect(Number(hash.admitted)).toBeGreaterThanOrEqual(answers.filter(admitted).length - unknown);
  expect(Number(hash.admitted)).toBeLessThanOrEqual(sent);
}

describe.for(outages)('a Redis that is $name', ({ name, seen }) => {
  const { causedAt, fixedAt, healedAt, roomy, tight, unseen, tightHash } = seen;
  const during = roomy.filter(sentFrom(causedAt, fixedAt));
  const strain = strainOf(seen);

  test('does not stop verified keys from being served by local decisions', () => {
    expect(during.length).toBeGreaterThan(20);
    expect(new Set(during.filter(sentFrom(causedAt + DEADLINE_MS)).map(({ mode }) => mode))).toEqual(
      new Set(['local']),
    );
    expect(new Set(roomy.map(({ status }) => status))).toEqual(new Set([200]));
  });

  test('leaves a key exactly its remaining tokens and the refill', () => {
    expect(judge(tight, { capacity: TIGHT, windowMs: MINUTE_MS }).violations).toEqual([]);
    expect(tight.filter(admitted).length).toBeGreaterThan(TIGHT - 5);
    expect(codesOf(tight)).toEqual(new Set(['none', 'rate_limit_exceeded']));
  });

  test('causes no ban, because local refusals are not strikes', () => {
    expect(tight.filter(({ status }) => status === 429).length).toBeGreaterThan(BAN_AFTER);
    // No place in line and no strike was stored.
    expect(tightHash.refusals ?? '0 0 0').toMatch(/^0 0 /);
    expect(tightHash).not.toHaveProperty('banned_until');
  });

  test('causes 503 with Retry-After for unverified keys until it recovers', () => {
    // Requests that were sent before the outage was detected wait for Redis and may be admitted.
    expect(unseen.during.length).toBeGreaterThan(2);
    const isFirst = ({ sentAt, status }: Answered) => status === 200 && sentAt < causedAt + DEADLINE_MS * strain;
    const later = unseen.during.filter((answer) => !isFirst(answer));
    expect(later.length).toBeGreaterThan(1);
    for (const { status, headers, json } of later) {
      expect([status, headers['retry-after'], (json as { code: string }).code]).toEqual([503, '1', 'unavailable']);
    }
    expect(unseen.after.at(-1)?.status).toBe(200);
  });

  test('delays the first requests at most until the deadline, and later ones not at all', () => {
    const first = during.toSorted((a, b) => a.sentAt - b.sentAt).slice(0, 4);
    expect(waitOf(first, 0.5)).toBeLessThan(DEADLINE_MS + NOISE_MS * strain);
    // If each request waited for Redis, even the fastest would take until the deadline.
    const before = roomy.filter(sentFrom(0, causedAt));
    expect(waitOf(during, 0.25)).toBeLessThan(waitOf(before, 0.25) + DEADLINE_MS * strain);
    expect(waitOf(during, 1)).toBeLessThan(healedAt - causedAt);
  });

  test('decides again within a second of its recovery and charges no request twice', () => {
    const after = sharedAgainAfter(seen, healedAt);
    const ms = (share: number) => waitOf(during, share).toFixed(1);
    process.stdout.write(
      `${name}: ${during.length} requests, p50 ${ms(0.5)} ms, p99 ${ms(0.99)}, p99.9 ${ms(0.999)}; shared again after ${after.toFixed(0)} ms\n`,
    );
    expect(after).toBeLessThan((1_000 + NOISE_MS) * strain);
    expectNothingTwice(seen, roomy, seen.roomyHash, seen.sent.roomy);
    expectNothingTwice(seen, tight, seen.tightHash, seen.sent.tight);
  });
});

test('silently dead connections are closed within a second', () => {
  const { seen } = halfOpen;
  const after = sharedAgainAfter(seen, seen.causedAt + DEADLINE_MS);
  process.stdout.write(`half-open: shared again after ${after.toFixed(0)} ms\n`);
  expect(seen.roomy.filter(sentFrom(seen.causedAt)).some(inMode('local'))).toBe(true);
  expect(after).toBeLessThan(1_000 * strainOf(seen));
  expect(new Set(seen.roomy.map(({ status }) => status))).toEqual(new Set([200]));
  expect(judge(seen.tight, { capacity: 2 * TIGHT, windowMs: 60_000 }).violations).toEqual([]);
  expectNothingTwice(seen, seen.roomy, seen.roomyHash, seen.sent.roomy);
});

test('no request or decision fails while scripts are flushed ten times a second', () => {
  const { seen } = flushed as Observed;
  expect(new Set(seen.roomy.map(({ status, mode }) => `${status} ${mode}`))).toEqual(new Set(['200 shared']));
  expect(Number(seen.roomyHash.admitted)).toBe(seen.sent.roomy);
  expect(judge(seen.tight, { capacity: TIGHT, windowMs: 60_000 }).violations).toEqual([]);
});
