import { DAY, type Level, MINUTE, refill, SECOND } from './bucket.ts';
import {
  allowsScope,
  endsAt,
  isBound,
  isDecidable,
  type Presented,
  rejectionOf,
  type Secret,
  secretOf,
} from './credential.ts';
import { type KeyRecord, type KeyState, marked, type StoredLevel } from './key-record.ts';
import type { BucketState, Decision, Unauthorized, Undecided, Verdict } from './limiter.ts';
import type { Plan } from './plans.ts';
import { NO_REFUSALS, nextPlace, patienceOf, type Refusals, refusalsAt, withRefusal } from './refusals.ts';

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

/**
 * @param plan the plan of the key
 * @param takes false to return the verdict on the next request, but take and count nothing
 */
export function decide(
  record: KeyRecord,
  state: KeyState,
  presented: Presented,
  plan: Plan,
  clock: number,
  takes = true,
): Decided {
  const facts = gatherFacts(record, state, presented, plan, clock);
  if ('verdict' in facts) return facts;
  const { limits, now, shift, levels, banEnd, isBanned, refusals } = facts;
  const later = { ...state, asOf: now, bannedUntil: banEnd, usage: marked(state, now) };
  const outcome = isBanned ? 'banned' : allowsScope(facts.secret, presented.use) ? undefined : 'forbidden';
  if (outcome !== undefined) {
    const verdict = answer(facts, outcome, levels, isBanned ? banEnd : 0);
    return shift > 0 ? { verdict, state: { ...later, ...stored(levels, limits), refusals } } : { verdict };
  }

  const used = { ...state.used, [facts.secret.id]: Math.floor(now / MINUTE) * MINUTE };
  const counted = { ...later, refusals, used };
  const isThere = hasToken(levels);
  const isShadowed = !isThere && plan.mode === 'shadow';
  if (isThere || isShadowed) {
    if (!takes) return { verdict: answer(facts, 'admitted', levels, 0) };
    const left = isThere ? { minute: take(levels.minute), day: take(levels.day) } : levels;
    const counts = { admitted: state.admitted + 1, shadowed: state.shadowed + (isShadowed ? 1 : 0) };
    return {
      verdict: answer(facts, 'admitted', left, 0, isShadowed),
      state: { ...counted, ...stored(left, limits), ...counts },
    };
  }

  const place = nextPlace(refusals, now, bucketsOf(limits, levels));
  if (!takes) return { verdict: answer(facts, 'refused', levels, place) };
  const after = withRefusal(refusals, now, place, limits);
  const kept = { ...counted, ...stored(levels, limits) };
  if (!after.isTooMany) {
    const refused = { refused: state.refused + 1, refusals: after.refusals };
    return { verdict: answer(facts, 'refused', levels, place), state: { ...kept, ...refused } };
  }
  const ban = nextBan({ bannedUntil: banEnd, bans: state.bans }, limits, now);
  const verdict = answer({ ...facts, banEnd: ban.bannedUntil }, 'banned', levels, ban.bannedUntil);
  return { verdict, state: { ...kept, ...ban, refusals: NO_REFUSALS } };
}

interface Facts {
  readonly record: KeyRecord;
  readonly secret: Secret;
  readonly limits: AllLimits;
  readonly now: number;
  /** By how much the clock was set back since the last decision. */
  readonly shift: number;
  readonly levels: Levels;
  /** The end of the stored ban. */
  readonly banEnd: number;
  /** Whether the ban is in force: a plan in shadow mode ignores bans that decisions set. */
  readonly isBanned: boolean;
  readonly isBannedByOperator: boolean;
  readonly refusals: Refusals;
}

function gatherFacts(
  record: KeyRecord,
  state: KeyState,
  { digest, use }: Presented,
  plan: Plan,
  now: number,
): Facts | { verdict: Unauthorized | Undecided } {
  const secret = secretOf(record, digest);
  if (secret === undefined) return { verdict: { outcome: 'unauthorized', reason: 'unknown' } };
  const rejection = rejectionOf(record, secret, now, use);
  if (rejection !== undefined) return { verdict: { outcome: 'unauthorized', ...rejection } };
  if (!isDecidable(secret)) return { verdict: { outcome: 'undecided', reason: 'unreadable' } };
  const limits = limitsOf(record, plan);
  if (limits === undefined) return { verdict: { outcome: 'undecided', reason: 'misconfigured' } };
  const shift = Math.max((state.asOf ?? now) - now, 0);
  const isByOperator = state.banReason?.until === state.bannedUntil;
  // Setting the clock back does not extend a ban. An operator's ban keeps its end time.
  const banEnd = isByOperator ? state.bannedUntil : Math.max(state.bannedUntil - shift, 0);
  const levels = levelsOf(state, limits, now);
  // If the day bucket is empty, the line waits for that bucket.
  const ofLine =
    levels.day.tokens < 1
      ? { window: DAY, before: state.day.limit ?? limits.day, limit: limits.day }
      : { window: MINUTE, before: state.minute.limit ?? limits.minute, limit: limits.minute };
  return {
    record,
    secret,
    limits,
    now,
    shift,
    levels,
    banEnd,
    isBanned: banEnd > now && (isByOperator || plan.mode !== 'shadow'),
    isBannedByOperator: isByOperator && banEnd > now,
    refusals: refusalsAt(state.refusals, now, shift, limits, state.minute.limit, ofLine),
  };
}

const answer = (
  { record, secret, limits, now, banEnd, isBannedByOperator }: Facts,
  outcome: Decision['outcome'],
  levels: Levels,
  retryAt: number,
  isShadowed = false,
): Decision => ({
  outcome,
  plan: record.plan,
  now,
  buckets: bucketsOf(limits, levels),
  bannedUntil: banEnd,
  retryAt,
  own: { minute: record.minute !== undefined, day: record.day !== undefined },
  isBannedByOperator,
  endsAt: endsAt(record, secret),
  bounds: isBound(secret) ? { scope: secret.scope, networks: secret.networks } : undefined,
  mode: 'shared',
  isShadowed,
  rejected: '',
});

/**
 * Both buckets of a key at this time, for display.
 * @returns undefined for a key without limits
 */
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

function levelsOf({ asOf, minute, day }: KeyState, limits: AllLimits, now: number): Levels {
  const elapsed = asOf === undefined ? DAY : Math.max(now - asOf, 0);
  return { minute: refilled(minute, limits.minute, MINUTE, elapsed), day: refilled(day, limits.day, DAY, elapsed) };
}

/** Since the last decision, the bucket has refilled at the lower of the old and the new limit. */
const refilled = (level: StoredLevel, limit: number, window: number, elapsed: number): Level =>
  refill(level, Math.min(level.limit ?? limit, limit), window, elapsed);

const stored = ({ minute, day }: Levels, limits: AllLimits): { minute: StoredLevel; day: StoredLevel } => ({
  minute: { ...minute, limit: limits.minute },
  day: { ...day, limit: limits.day },
});

type AllLimits = Required<Pick<Plan, 'minute' | 'day' | 'ban_after' | 'ban_grace_seconds' | 'ban_seconds'>>;

function limitsOf(record: Pick<KeyRecord, 'minute' | 'day'>, plan: Plan): AllLimits | undefined {
  const { minute = plan.minute, day = plan.day } = record;
  const { ban_seconds } = plan;
  if (!minute || !day || !ban_seconds) return undefined;
  return { ...patienceOf(plan, minute), day, ban_seconds };
}

/** A ban that begins within a day of the end of the last one is twice as long, up to a day. */
function nextBan(
  state: Pick<KeyState, 'bans' | 'bannedUntil'>,
  limits: AllLimits,
  now: number,
): Pick<KeyState, 'bans' | 'bannedUntil'> {
  const bans = state.bannedUntil > 0 && now < state.bannedUntil + SERIES ? state.bans + 1 : 1;
  const first = limits.ban_seconds * SECOND;
  const length = Math.min(first * 2 ** Math.min(bans - 1, MAX_DOUBLINGS), Math.max(first, LONGEST_BAN));
  return { bans, bannedUntil: now + length };
}

const bucketsOf = (limits: AllLimits, { minute, day }: Levels): readonly [BucketState, BucketState] => [
  { name: 'minute', limit: limits.minute, window: MINUTE, ...minute },
  { name: 'day', limit: limits.day, window: DAY, ...day },
];

const take = ({ tokens, fraction }: Level): Level => ({ tokens: tokens - 1, fraction });

const hasToken = ({ minute, day }: Levels): boolean => minute.tokens >= 1 && day.tokens >= 1;
