import { type Level, refill } from './bucket.ts';
import { inactiveReason, type KeyRecord, type KeyState } from './keys.ts';
import type { Limits, Plan, PlanTable } from './plans.ts';
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
import { marked } from './usage.ts';
import {
  type BucketState,
  DAY,
  type Decision,
  MINUTE,
  SECOND,
  type Unauthorized,
  type Undecided,
  type Verdict,
} from './verdict.ts';

/**
 * The rules of decide.lua for one request, as a pure function: the embedded limiter lives by it, and a property test holds
 * the two together. Read them side by side; they keep the same order and the same names.
 */

const LONGEST_BAN = DAY;
const SERIES = DAY;
const MAX_DOUBLINGS = 17;

export interface Decided {
  readonly verdict: Verdict;
  /** The state to keep; undefined when nothing changed. */
  readonly state?: KeyState;
}

export function decide(record: KeyRecord, state: KeyState, digest: string, plans: PlanTable, clock: number): Decided {
  const facts = open(record, state, digest, plans, clock);
  if ('verdict' in facts) return facts;
  const { plan, now, shift, levels, bannedUntil, queue, patience } = facts;
  if (bannedUntil > now) {
    const verdict = answer(facts, 'banned', levels, bannedUntil, bannedUntil);
    return shift > 0 ? { verdict, state: { ...state, asOf: now, bannedUntil, queue } } : { verdict };
  }

  const counted = { ...state, asOf: now, bannedUntil, usage: marked(state, now) };
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

/** What the next request would be told. Nothing is taken, and nothing is counted. */
export function peek(record: KeyRecord, state: KeyState, digest: string, plans: PlanTable, clock: number): Verdict {
  const facts = open(record, state, digest, plans, clock);
  if ('verdict' in facts) return facts.verdict;
  const { plan, now, levels, bannedUntil, queue, patience } = facts;
  if (bannedUntil > now) return answer(facts, 'banned', levels, bannedUntil, bannedUntil);
  const isHeld = queue !== undefined && isUnexpected(queue) && isOnNotice(queue, patience);
  if (plan.mode === 'shadow' || (hasToken(levels) && !isHeld)) return answer(facts, 'admitted', levels, bannedUntil, 0);
  const { seconds } = placeFor(queue ?? NOBODY, now, facts.limits, levels, patience);
  return answer(facts, 'refused', levels, bannedUntil, now + seconds * SECOND);
}

/** All that a decision goes by. */
interface Facts {
  readonly record: KeyRecord;
  readonly digest: string;
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

function open(
  record: KeyRecord,
  state: KeyState,
  digest: string,
  plans: PlanTable,
  now: number,
): Facts | { verdict: Unauthorized | Undecided } {
  const reason = unauthorized(record, digest, now);
  if (reason !== undefined) return { verdict: { outcome: 'unauthorized', reason } };
  const plan = plans[record.plan];
  const limits = limitsOf(record, plan);
  if (limits === undefined) return { verdict: { outcome: 'undecided', reason: 'misconfigured' } };
  const shift = Math.max((state.asOf ?? now) - now, 0);
  const patience = patienceOf(limits, plan.minute);
  return {
    record,
    digest,
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

/** A ban lasts no longer because the clock was set back; one that an operator set lasts until the time that was set. */
function banEnd({ bannedUntil, banReason }: KeyState, shift: number): number {
  if (shift === 0 || bannedUntil === 0 || banReason?.until === bannedUntil) return bannedUntil;
  return Math.max(bannedUntil - shift, 0);
}

const answer = (
  { record, digest, limits, now }: Facts,
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
  endsAt: endsAt(record, digest),
  mode: 'shared',
  isShadowed,
  rejected: '',
});

/**
 * Both buckets of a key as a decision would find them, for people to look at: nothing is taken. Undefined for a key that
 * has no limits.
 */
export function look(
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

/** After a clock that was set back no time has passed. */
function levelsOf(state: KeyState, limits: AllLimits, now: number): Levels {
  const elapsed = state.asOf === undefined ? DAY : Math.max(now - state.asOf, 0);
  return {
    minute: refill(state.minute, limits.minute, MINUTE, elapsed),
    day: refill(state.day, limits.day, DAY, elapsed),
  };
}

type AllLimits = Required<Limits>;

function limitsOf(record: Pick<KeyRecord, 'minute' | 'day'>, plan: Plan): AllLimits | undefined {
  const { minute = plan.minute, day = plan.day } = record;
  const { ban_after, ban_within_seconds, ban_seconds } = plan;
  if (!minute || !day || !ban_after || !ban_within_seconds || !ban_seconds) return undefined;
  return { minute, day, ban_after, ban_within_seconds, ban_seconds };
}

/** Each ban within a day of the last one's end is twice as long. */
function nextBan(
  state: Pick<KeyState, 'bans' | 'bannedUntil'>,
  limits: AllLimits,
  now: number,
): Pick<KeyState, 'bans' | 'bannedUntil'> {
  const bans = state.bannedUntil > 0 && now < state.bannedUntil + SERIES ? state.bans + 1 : 1;
  const length = limits.ban_seconds * SECOND * 2 ** Math.min(bans - 1, MAX_DOUBLINGS);
  return { bans, bannedUntil: now + Math.min(length, LONGEST_BAN) };
}

/** Why a key opens nothing with the secret of this digest; undefined where it does. */
export function unauthorized(
  record: Omit<KeyRecord, 'plan'>,
  digest: string,
  now: number,
): Unauthorized['reason'] | undefined {
  const isOld = digest === record.oldSecret && (record.oldSecretUntil ?? 0) > now;
  if (digest !== record.secret && !isOld) return 'unknown';
  return inactiveReason(record, now);
}

/** When the credential ends: with the key, or with the grace of a secret before a rotation. 0 for never. */
function endsAt({ secret, oldSecretUntil = 0, expiresAt = Infinity }: KeyRecord, digest: string): number {
  const end = Math.min(expiresAt, digest === secret ? Infinity : oldSecretUntil);
  return end === Infinity ? 0 : end;
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
  parts: level.parts,
});

const take = ({ tokens, parts }: Level): Level => ({ tokens: tokens - 1, parts });

const hasToken = ({ minute, day }: Levels): boolean => minute.tokens >= 1 && day.tokens >= 1;
