import { full, type Level, refill } from './bucket.ts';
import { endOf, type KeyRecord, type KeyState, type Patience } from './keys.ts';
import type { Limits, Plan, PlanTable } from './plans.ts';
import { marked } from './usage.ts';
import { type BucketState, DAY, type Decision, MINUTE, SECOND, type Unauthorized, type Verdict } from './verdict.ts';

/**
 * The rules of decide.lua for one request, as a pure function: the embedded limiter lives by it, and a property test holds
 * the two together. Read them side by side; they keep the same order and the same names.
 */

/** A clock that is ahead by no more than this has jittered; one further ahead was wrong, and is not waited for. */
const JITTER = SECOND;
const LONGEST_BAN = DAY;
const SERIES = DAY;
const MAX_DOUBLINGS = 17;
const DECIMALS = 1e12;

export interface Decided {
  readonly verdict: Verdict;
  /** The state to keep; undefined when nothing changed. */
  readonly state?: KeyState;
}

export function decide(record: KeyRecord, state: KeyState, digest: string, plans: PlanTable, clock: number): Decided {
  const { asOf, now } = timesOf(state, clock);
  const reason = unauthorized(record, digest, now);
  if (reason !== undefined) return { verdict: { outcome: 'unauthorized', reason } };

  const limits = limitsOf(record, plans[record.plan]);
  if (limits === undefined) return { verdict: { outcome: 'undecided', reason: 'misconfigured' } };

  const levels = levelsOf(state, limits, asOf, now);
  const answer = (
    outcome: Decision['outcome'],
    { minute, day }: Levels,
    bannedUntil: number,
    isShadowed = false,
  ): Decision => ({
    outcome,
    plan: record.plan,
    now,
    buckets: bucketsOf(limits, { minute, day }),
    bannedUntil,
    endsAt: endsAt(record, digest),
    mode: 'shared',
    isShadowed,
    rejected: '',
  });
  if (state.bannedUntil > now) return { verdict: answer('banned', levels, state.bannedUntil) };

  const counted = { ...state, asOf: now, usage: marked(state, now) };
  if (levels.minute.tokens >= 1 && levels.day.tokens >= 1) {
    const left = { minute: take(levels.minute), day: take(levels.day) };
    const patience = state.patience && refillPatience(state.patience, limits, asOf, now);
    const admitted = { ...counted, ...left, patience, admitted: state.admitted + 1 };
    return { verdict: answer('admitted', left, state.bannedUntil), state: admitted };
  }

  if (plans[record.plan].mode === 'shadow') {
    const patience = state.patience && refillPatience(state.patience, limits, asOf, now);
    const through = { admitted: state.admitted + 1, shadowed: state.shadowed + 1 };
    const verdict = answer('admitted', levels, state.bannedUntil, true);
    return { verdict, state: { ...counted, ...levels, ...through, patience } };
  }

  const patience = strike(refillPatience(state.patience, limits, asOf, now));
  const refused = { ...counted, ...levels, patience, refused: state.refused + 1 };
  if (patience.tokens >= 1) return { verdict: answer('refused', levels, state.bannedUntil), state: refused };
  const banned = { ...refused, ...nextBan(state, limits, now) };
  return { verdict: answer('banned', levels, banned.bannedUntil), state: banned };
}

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
  const { asOf, now } = timesOf(state, clock);
  return limits && bucketsOf(limits, levelsOf(state, limits, asOf, now));
}

export function timesOf(state: KeyState, clock: number): { asOf: number | undefined; now: number } {
  const asOf = state.asOf !== undefined && state.asOf > clock + JITTER ? clock : state.asOf;
  return { asOf, now: Math.max(clock, asOf ?? 0) };
}

interface Levels {
  readonly minute: Level;
  readonly day: Level;
}

function levelsOf(state: KeyState, limits: AllLimits, asOf: number | undefined, now: number): Levels {
  const elapsed = asOf === undefined ? DAY : now - asOf;
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
function nextBan(state: KeyState, limits: AllLimits, now: number): Pick<KeyState, 'bans' | 'bannedUntil'> {
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
  return endOf(record, now);
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

const strike = ({ tokens, window, parts }: Patience): Patience => ({ tokens: Math.max(tokens - 1, 0), window, parts });

/** Patience counts whole seconds, the unit in which it is set. */
function refillPatience(
  patience: Patience | undefined,
  limits: AllLimits,
  asOf: number | undefined,
  now: number,
): Patience {
  const window = limits.ban_within_seconds;
  if (patience === undefined) return { ...full(limits.ban_after), window };
  const seconds = asOf === undefined ? window : Math.floor(now / SECOND) - Math.floor(asOf / SECOND);
  return { ...refill(rescale(patience, window), limits.ban_after, window, seconds), window };
}

/** A level read in another window keeps its decimal value, with the twelve digits that decide.lua stores. */
function rescale({ tokens, parts, window: old }: Patience, window: number): Level {
  if (old === window) return { tokens, parts };
  const decimals = Math.floor((parts / old) * DECIMALS + 0.5);
  return { tokens, parts: Math.floor((decimals / DECIMALS) * window + 0.5) };
}
