import { type Level, refill } from './bucket.ts';
import { DAY, MINUTE, SECOND } from './clock.ts';
import { allowsScope, endsAt, isBound, type Presented, rejectionReason, type Secret, secretOf } from './credential.ts';
import type { KeyRecord, KeyState } from './key-record.ts';
import type { BucketState, Decision, Unauthorized, Undecided, Verdict } from './limiter.ts';
import type { Plan, PlanTable } from './plans.ts';
import {
  advance,
  expect,
  isOnNotice,
  isUnexpected,
  join,
  NOBODY,
  type Patience,
  patienceOf,
  placeFor,
  type Queue,
} from './queue.ts';
import { marked } from './usage-marks.ts';

/**
 * The rules of decide.lua for one request, as a pure function. The embedded limiter uses it, and a property test checks
 * that both agree.
 */

const LONGEST_BAN = DAY;
const SERIES = DAY;
const MAX_DOUBLINGS = 17;

export interface Decided {
  readonly verdict: Verdict;
  /** The state to store. Undefined if nothing changed. */
  readonly state?: KeyState;
}

export function decide(
  record: KeyRecord,
  state: KeyState,
  presented: Presented,
  plans: PlanTable,
  clock: number,
): Decided {
  const facts = gatherFacts(record, state, presented, plans, clock);
  if ('verdict' in facts) return facts;
  const { plan, now, shift, levels, bannedUntil, queue, patience } = facts;
  const outcome = bannedUntil > now ? 'banned' : allowsScope(facts.secret, presented.use) ? undefined : 'forbidden';
  if (outcome !== undefined) {
    const verdict = answer(facts, outcome, levels, bannedUntil, outcome === 'banned' ? bannedUntil : 0);
    return shift > 0 ? { verdict, state: { ...state, asOf: now, bannedUntil, queue } } : { verdict };
  }

  const used = { ...state.used, [presented.digest]: Math.floor(now / MINUTE) * MINUTE };
  const counted = { ...state, asOf: now, bannedUntil, usage: marked(state, now), used };
  const isThere = hasToken(levels);
  const left = isThere ? { minute: take(levels.minute), day: take(levels.day) } : levels;
  if (plan.mode === 'shadow') {
    const shadowed = state.shadowed + (isThere ? 0 : 1);
    const verdict = answer(facts, 'admitted', left, bannedUntil, 0, !isThere);
    return { verdict, state: { ...counted, ...left, queue, shadowed, admitted: state.admitted + 1 } };
  }

  const expected = queue && expect(queue, now, isThere, patience);
  const early = expected?.early ?? false;
  const onNotice = expected !== undefined && isOnNotice(expected.queue, patience);
  if (isThere && !(early && onNotice)) {
    const after = expected && { ...expected.queue, free: expected.queue.free + 1 };
    const admitted = { ...counted, ...left, queue: after, admitted: state.admitted + 1 };
    return { verdict: answer(facts, 'admitted', left, bannedUntil, 0), state: admitted };
  }

  const refused = { ...counted, ...levels, refused: state.refused + 1 };
  if (expected !== undefined && early && onNotice && expected.queue.early >= patience.borne) {
    const ban = nextBan({ bannedUntil, bans: state.bans }, facts.limits, now);
    const verdict = answer(facts, 'banned', levels, ban.bannedUntil, ban.bannedUntil);
    return { verdict, state: { ...refused, ...ban, queue: undefined } };
  }
  const line = expected?.queue ?? NOBODY;
  const told = placeFor(line, now, facts.limits, levels, patience);
  const after = join(line, now, told, Math.min(facts.limits.minute, facts.limits.day));
  const retryAt = now + told.seconds * SECOND;
  return { verdict: answer(facts, 'refused', levels, bannedUntil, retryAt), state: { ...refused, queue: after } };
}

/** The verdict for the next request. Nothing is taken or counted. */
export function peek(
  record: KeyRecord,
  state: KeyState,
  presented: Presented,
  plans: PlanTable,
  clock: number,
): Verdict {
  const facts = gatherFacts(record, state, presented, plans, clock);
  if ('verdict' in facts) return facts.verdict;
  const { plan, now, levels, bannedUntil, queue, patience } = facts;
  if (bannedUntil > now) return answer(facts, 'banned', levels, bannedUntil, bannedUntil);
  if (!allowsScope(facts.secret, presented.use)) return answer(facts, 'forbidden', levels, bannedUntil, 0);
  const isHeld = queue !== undefined && isUnexpected(queue) && isOnNotice(queue, patience);
  if (plan.mode === 'shadow' || (hasToken(levels) && !isHeld)) return answer(facts, 'admitted', levels, bannedUntil, 0);
  const { seconds } = placeFor(queue ?? NOBODY, now, facts.limits, levels, patience);
  return answer(facts, 'refused', levels, bannedUntil, now + seconds * SECOND);
}

/** All inputs of a decision. */
interface Facts {
  readonly record: KeyRecord;
  readonly secret: Secret;
  readonly plan: Plan;
  readonly limits: AllLimits;
  readonly now: number;
  /** By how much the clock was set back since the last decision. */
  readonly shift: number;
  readonly levels: Levels;
  readonly bannedUntil: number;
  readonly queue: Queue | undefined;
  readonly patience: Patience;
}

function gatherFacts(
  record: KeyRecord,
  state: KeyState,
  { digest, use }: Presented,
  plans: PlanTable,
  now: number,
): Facts | { verdict: Unauthorized | Undecided } {
  const secret = secretOf(record, digest);
  const reason = secret === undefined ? 'unknown' : rejectionReason(record, secret, now, use);
  if (secret === undefined || reason !== undefined)
    return { verdict: { outcome: 'unauthorized', reason: reason ?? 'unknown' } };
  const plan = plans[record.plan];
  const limits = limitsOf(record, plan);
  if (limits === undefined) return { verdict: { outcome: 'undecided', reason: 'misconfigured' } };
  const shift = Math.max((state.asOf ?? now) - now, 0);
  const patience = patienceOf(limits, plan.minute);
  return {
    record,
    secret,
    plan,
    limits,
    now,
    shift,
    levels: levelsOf(state, limits, now),
    bannedUntil: banEnd(state, shift),
    queue: advance(state.queue, now, shift, patience),
    patience,
  };
}

/** Setting the clock back does not extend a ban. An operator's ban keeps its end time. */
function banEnd({ bannedUntil, banReason }: KeyState, shift: number): number {
  if (shift === 0 || bannedUntil === 0 || banReason?.until === bannedUntil) return bannedUntil;
  return Math.max(bannedUntil - shift, 0);
}

const answer = (
  { record, secret, limits, now }: Facts,
  outcome: Decision['outcome'],
  levels: Levels,
  bannedUntil: number,
  retryAt: number,
  isShadowed = false,
): Decision => ({
  outcome,
  plan: record.plan,
  now,
  buckets: bucketsOf(limits, levels),
  bannedUntil,
  retryAt,
  endsAt: endsAt(record, secret),
  bounds: isBound(secret) ? { scope: secret.scope, networks: secret.networks } : undefined,
  mode: 'shared',
  isShadowed,
  rejected: '',
});

/** Both buckets of a key at this time, for display. Nothing is taken. @returns undefined for a key without limits */
export function bucketsAt(
  record: Pick<KeyRecord, 'minute' | 'day'>,
  state: KeyState,
  plan: Plan,
  clock: number,
): readonly [minute: BucketState, day: BucketState] | undefined {
  const limits = limitsOf(record, plan);
  return limits && bucketsOf(limits, levelsOf(state, limits, clock));
}

interface Levels {
  readonly minute: Level;
  readonly day: Level;
}

/** If the clock was set back, no time has passed. */
function levelsOf(state: KeyState, limits: AllLimits, now: number): Levels {
  const elapsed = state.asOf === undefined ? DAY : Math.max(now - state.asOf, 0);
  return {
    minute: refill(state.minute, limits.minute, MINUTE, elapsed),
    day: refill(state.day, limits.day, DAY, elapsed),
  };
}

/** The numbers that a decision needs. Other fields of a plan change nothing here. */
type AllLimits = Required<Pick<Plan, 'minute' | 'day' | 'ban_after' | 'ban_within_seconds' | 'ban_seconds'>>;

function limitsOf(record: Pick<KeyRecord, 'minute' | 'day'>, plan: Plan): AllLimits | undefined {
  const { minute = plan.minute, day = plan.day } = record;
  const { ban_after, ban_within_seconds, ban_seconds } = plan;
  if (!minute || !day || !ban_after || !ban_within_seconds || !ban_seconds) return undefined;
  return { minute, day, ban_after, ban_within_seconds, ban_seconds };
}

/** A ban that begins within a day of the last one's end is twice as long. */
function nextBan(
  state: Pick<KeyState, 'bans' | 'bannedUntil'>,
  limits: AllLimits,
  now: number,
): Pick<KeyState, 'bans' | 'bannedUntil'> {
  const bans = state.bannedUntil > 0 && now < state.bannedUntil + SERIES ? state.bans + 1 : 1;
  const length = limits.ban_seconds * SECOND * 2 ** Math.min(bans - 1, MAX_DOUBLINGS);
  return { bans, bannedUntil: now + Math.min(length, LONGEST_BAN) };
}

const bucketsOf = (limits: AllLimits, { minute, day }: Levels): readonly [BucketState, BucketState] => [
  bucket('minute', limits.minute, MINUTE, minute),
  bucket('day', limits.day, DAY, day),
];

const bucket = (name: BucketState['name'], limit: number, window: number, level: Level): BucketState => ({
  name,
  limit,
  window,
  tokens: level.tokens,
  fraction: level.fraction,
});

const take = ({ tokens, fraction }: Level): Level => ({ tokens: tokens - 1, fraction });

const hasToken = ({ minute, day }: Levels): boolean => minute.tokens >= 1 && day.tokens >= 1;
