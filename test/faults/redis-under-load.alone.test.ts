import { describe, expect, test } from 'vitest';
import { judge } from '../support/allowance-checker.ts';
import { inTurn } from '../support/in-turn.ts';
import type { Answered } from '../support/paced-load.ts';
import { startService } from '../support/process.ts';
import { BAN_AFTER, type Decided, type Observation, observe, SPENT_BEFORE, TIGHT } from '../support/redis-fault.ts';
import { flushedScripts, HALF_OPEN, OUTAGES } from '../support/redis-outages.ts';
import { temporaryFolder } from '../support/stack.ts';
import { quantile } from '../support/statistics.ts';

/** What the gateway promises while its Redis misbehaves: every fault under load, with a gateway and a Redis that are processes. */

/** The gateway's own deadline, and what a machine adds to it that has other things to do. */
const DEADLINE_MS = 50;
const NOISE_MS = 400;
/** For so long a key that was not seen before waits for its answer: ten deadlines. */
const PATIENCE_MS = 500;
/** Half of the requests to a gateway that has nothing to suffer from take less on a machine that is not overloaded. */
const USUAL_MS = 10;

const core = await startService('core/main.ts', {
  PORT: '0',
  DATABASE_URL: `sqlite:${await temporaryFolder()}/store.db`,
  LOG_LEVEL: 'warn',
});
const observed = await inTurn([HALF_OPEN, flushedScripts(100), ...OUTAGES], 2, async (fault) => {
  return { name: fault.name, seen: await observe(fault, core.addresses.core ?? '') };
});
const [halfOpen, flushed, ...outages] = observed as [Observed, Observed, ...Observed[]];

interface Observed {
  readonly name: string;
  readonly seen: Observation;
}

const sentFrom =
  (from: number, to = Infinity) =>
  (answer: Decided) =>
    answer.sentAt >= from && answer.sentAt < to;
const codesOf = (answers: readonly Decided[]) =>
  new Set(answers.map(({ json }) => (json as { code?: string }).code ?? 'none'));
const inMode = (mode: Decided['mode']) => (answer: Decided) => answer.mode === mode;
const admitted = (answer: Decided) => answer.admitted;

/** How overloaded the machine is: 1 when it is not. Times are held to their bounds times this. */
function strainOf({ roomy, causedAt }: Observation): number {
  return Math.max(1, waitOf(roomy.filter(sentFrom(0, causedAt)), 0.5) / USUAL_MS);
}

/** How long after `from` the first request was sent that Redis decided on again. */
function sharedAgainAfter({ roomy }: Observation, from: number): number {
  return (roomy.filter(sentFrom(from)).find(inMode('shared'))?.sentAt ?? Infinity) - from;
}

const waitOf = (answers: readonly Decided[], share: number): number =>
  quantile(
    answers.map(({ ms }) => ms),
    share,
  );

/** What Redis charged is no less than what it admitted, and no more than was asked: a late decision charges, none is repeated. */
function expectNothingTwice(answers: readonly Decided[], hash: Record<string, string>, sent: number): void {
  const shared = answers.filter(inMode('shared')).filter(admitted).length;
  expect(Number(hash.admitted)).toBeGreaterThanOrEqual(shared);
  expect(Number(hash.admitted)).toBeLessThanOrEqual(sent);
}

describe.for(outages)('a Redis that is $name', ({ name, seen }) => {
  const { causedAt, healedAt, roomy, tight, unseen, tightHash } = seen;
  const during = roomy.filter(sentFrom(causedAt, healedAt));
  const strain = strainOf(seen);

  test('takes no decision, and no key that was seen before is the worse for it', () => {
    expect(during.length).toBeGreaterThan(20);
    expect(new Set(during.filter(sentFrom(causedAt + DEADLINE_MS)).map(({ mode }) => mode))).toEqual(
      new Set(['local']),
    );
    expect(new Set(roomy.map(({ status }) => status))).toEqual(new Set([200]));
  });

  test('leaves a key what it had left and what refills, and not one request more', () => {
    expect(judge(tight, { capacity: TIGHT, windowMs: 60_000 }).violations).toEqual([]);
    expect(tight.filter(admitted).length).toBeGreaterThan(TIGHT - 5);
    expect(codesOf(tight)).toEqual(new Set(['none', 'rate_limit_exceeded']));
  });

  test('bans nobody for a local refusal', () => {
    expect(tight.filter(({ status }) => status === 429).length).toBeGreaterThan(BAN_AFTER);
    expect(tightHash).not.toHaveProperty('refused');
    expect(tightHash).not.toHaveProperty('waiting');
    expect(tightHash).not.toHaveProperty('banned_until');
  });

  test('has keys that were never seen come back, and knows them when it is back', () => {
    // Those that came before it counted as an outage wait for their answer, and may have it.
    expect(unseen.during.length).toBeGreaterThan(2);
    const isFirst = ({ sentAt, status }: Answered) => status === 200 && sentAt < causedAt + PATIENCE_MS * strain;
    const told = unseen.during.filter((answer) => !isFirst(answer));
    expect(told.length).toBeGreaterThan(1);
    for (const { status, headers, json } of told) {
      expect([status, headers['retry-after'], (json as { code: string }).code]).toEqual([503, '1', 'unavailable']);
    }
    expect(unseen.after.at(-1)?.status).toBe(200);
  });

  test('holds up who meets it first for no longer than the deadline, and nobody after', () => {
    const first = during.toSorted((a, b) => a.sentAt - b.sentAt).slice(0, 4);
    expect(waitOf(first, 0.5)).toBeLessThan(DEADLINE_MS + NOISE_MS * strain);
    // Were they asked of Redis one by one, not even the luckiest would be answered before the deadline.
    const before = roomy.filter(sentFrom(0, causedAt));
    expect(waitOf(during, 0.25)).toBeLessThan(waitOf(before, 0.25) + DEADLINE_MS * strain);
    expect(waitOf(during, 1)).toBeLessThan(healedAt - causedAt);
  });

  test('decides again within a second of answering, and has charged nobody twice', () => {
    const after = sharedAgainAfter(seen, healedAt);
    const ms = (share: number) => waitOf(during, share).toFixed(1);
    process.stdout.write(
      `${name}: ${during.length} requests, p50 ${ms(0.5)} ms, p99 ${ms(0.99)}, p99.9 ${ms(0.999)}; shared again after ${after.toFixed(0)} ms\n`,
    );
    expect(after).toBeLessThan((1_000 + NOISE_MS) * strain);
    expectNothingTwice(roomy, seen.roomyHash, seen.sent.roomy);
    expectNothingTwice(tight, seen.tightHash, seen.sent.tight);
    expect(Number(tightHash.admitted)).toBeLessThan(SPENT_BEFORE + 10);
  });
});

test('connections that are dead without a word are given up within a second', () => {
  const { seen } = halfOpen;
  const after = sharedAgainAfter(seen, seen.causedAt + DEADLINE_MS);
  process.stdout.write(`half-open: shared again after ${after.toFixed(0)} ms\n`);
  expect(seen.roomy.filter(sentFrom(seen.causedAt)).some(inMode('local'))).toBe(true);
  expect(after).toBeLessThan(1_000 * strainOf(seen));
  expect(new Set(seen.roomy.map(({ status }) => status))).toEqual(new Set([200]));
  expect(judge(seen.tight, { capacity: 2 * TIGHT, windowMs: 60_000 }).violations).toEqual([]);
  expectNothingTwice(seen.roomy, seen.roomyHash, seen.sent.roomy);
});

test('scripts flushed ten times a second cost nobody a request or a decision', () => {
  const { seen } = flushed;
  expect(new Set(seen.roomy.map(({ status, mode }) => `${status} ${mode}`))).toEqual(new Set(['200 shared']));
  expect(Number(seen.roomyHash.admitted)).toBe(seen.sent.roomy);
  expect(judge(seen.tight, { capacity: TIGHT, windowMs: 60_000 }).violations).toEqual([]);
});
