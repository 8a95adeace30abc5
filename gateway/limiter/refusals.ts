import { MINUTE, SECOND, ticksUntilToken } from './bucket.ts';
import type { BucketState } from './limiter.ts';
import { PLAN_FIELDS, type Plan } from './plans.ts';

/**
 * The refusal rules: a line and strikes. Each refused request gets a place in line, and a key that keeps sending
 * more than nine times its limit, without a pause, is banned.
 *
 * A refused request takes the next place: the last place given plus the time that one token takes to refill. A request
 * that finds a token takes it, however long the line is. A refused request also adds a strike. Strikes are forgotten at
 * eight times the rate of the minute limit; a key holds `ban_after` of them. A refusal without room for its strike,
 * `ban_grace_seconds` or more after the first such refusal, bans the key.
 *
 * These are the rules of decide.lua; a property test checks that both agree. Times are Unix time in microseconds, and
 * whole numbers: a token's time is rounded up, a strike's time down.
 */

/** All that is remembered of refusals. A time in the past has no effect. */
export interface Refusals {
  /** The last place given in line. */
  readonly lineUntil: number;
  readonly strikesUntil: number;
  /**
   * When there was first no room for a strike; 0 for never. It is cleared with the last strike. While it is in the
   * future, no refusal bans the key. Until then, clients may retry at times set under a limit of more than twice this
   * one, or by a gateway without Redis.
   */
  readonly fullAt: number;
}

export const NO_REFUSALS: Refusals = { lineUntil: 0, strikesUntil: 0, fullAt: 0 };

export type Patience = Required<Pick<Plan, 'minute' | 'ban_after' | 'ban_grace_seconds'>>;

/**
 * Strikes are forgotten at FORGOTTEN times the rate of the minute limit, and a key holds HELD times the minute limit of
 * them.
 */
const FORGOTTEN = 8;
const HELD = 5;
/**
 * If a limit is lowered by a factor of up to nine, clients that wait collect no strikes. A ninth of their requests is
 * admitted, and the strikes of the others are forgotten as fast as they are added. LOWERED is less than nine, because a
 * limit can be lowered again while clients wait.
 */
const LOWERED = 2;

const DEFAULT_GRACE_SECONDS = PLAN_FIELDS.ban_grace_seconds.defaults.free;

/** The `ban_after` of a key if its plan sets none. */
export const usualBanAfter = (minute: number): number => HELD * minute;

/** The ban rules for a minute limit. Rules that the plan does not set have their defaults. */
export const patienceOf = (
  { ban_after, ban_grace_seconds = DEFAULT_GRACE_SECONDS }: Partial<Patience>,
  minute: number,
): Patience => ({ minute, ban_after: ban_after ?? usualBanAfter(minute), ban_grace_seconds });

/** With a higher `ban_after`, strikes last for more than a minute, so bursts once a minute could lead to a ban. */
export const mostBanAfter = (minute: number): number => FORGOTTEN * minute;

/** The maximum number of places in a line: the minute limit times this. A line ends at most an hour ahead. */
export const LINE_MINUTES = 15;
const LONGEST_LINE = 60 * MINUTE;

const strikeTime = (minute: number): number => Math.max(1, Math.floor(MINUTE / (FORGOTTEN * minute)));

/** Converts the time that strikes last to another limit. The number of strikes stays the same. */
const inTimes = (time: number, timeThen: number, strikes: number): number =>
  time === timeThen ? strikes : Math.floor((strikes * time) / timeThen);

/** A bucket's limit when the refusals were stored, and the one in force. */
export interface ChangedLimit {
  readonly window: number;
  readonly before: number;
  readonly limit: number;
}

/** The length of the line now. If the limit was raised, the number of places is kept, and each takes less time. */
function inPlaces(line: number, { window, before, limit }: ChangedLimit): number {
  if (limit <= before) return line;
  return Math.min(line, Math.ceil(line / Math.ceil(window / before)) * Math.ceil(window / limit));
}

/**
 * The refusals that still count at `now`. If the clock was set back, all times move back by `shift`.
 * @param minuteThen the minute limit when the refusals were stored. A changed limit keeps the number of strikes
 * @param ofLine the limit of the bucket that refused the requests
 */
export function refusalsAt(
  stored: Refusals,
  now: number,
  shift: number,
  patience: Patience,
  minuteThen = patience.minute,
  ofLine?: ChangedLimit,
): Refusals {
  if (stored === NO_REFUSALS) return NO_REFUSALS;
  const line = stored.lineUntil - shift - now;
  const lineUntil = line > 0 ? now + (ofLine === undefined ? line : inPlaces(line, ofLine)) : 0;
  const fullAt = Math.max(
    stored.fullAt - shift,
    LOWERED * patience.minute < minuteThen && line > 0 ? now + line : 0,
    0,
  );
  const excused = fullAt > now ? fullAt : 0;
  const time = strikeTime(patience.minute);
  const strikes = now + inTimes(time, strikeTime(minuteThen), stored.strikesUntil - shift - now);
  if (strikes <= now) return lineUntil + excused === 0 ? NO_REFUSALS : { lineUntil, strikesUntil: 0, fullAt: excused };
  const most = patience.ban_after * time;
  // If there are more strikes than a key holds, or the limit was changed, this leaves room for one more strike, so that
  // neither can ban the key by itself.
  if (strikes - now > (minuteThen === patience.minute ? most : most - time))
    return { lineUntil, strikesUntil: most > time ? now + most - time : 0, fullAt: excused };
  return { lineUntil, strikesUntil: strikes, fullAt };
}

/** How many strikes the key has left before a refusal can ban it. */
export function strikesLeft({ strikesUntil }: Refusals, now: number, { minute, ban_after }: Patience): number {
  const held = Math.ceil(Math.max(0, strikesUntil - now) / strikeTime(minute));
  return Math.max(0, ban_after - held);
}

/**
 * The place of a request that these buckets refuse.
 * @param buckets the minute bucket first
 */
export function nextPlace({ lineUntil }: Refusals, now: number, buckets: readonly BucketState[]): number {
  const waitOf = (bucket: BucketState) => ticksUntilToken(bucket, bucket.limit, bucket.window);
  const slowest = buckets.reduce((slow, bucket) => (waitOf(bucket) > waitOf(slow) ? bucket : slow));
  const token = now + waitOf(slowest);
  if (lineUntil <= now) return token;
  const tokenTime = Math.ceil(slowest.window / slowest.limit);
  const ahead = Math.min(LINE_MINUTES * (buckets[0] as BucketState).limit * tokenTime, LONGEST_LINE);
  return Math.max(token, Math.min(lineUntil + tokenTime, now + ahead));
}

/** The refusals including a new one at `place`, and whether the new one bans the key. */
export function withRefusal(
  { strikesUntil, fullAt }: Refusals,
  now: number,
  place: number,
  { minute, ban_after, ban_grace_seconds }: Patience,
): { readonly refusals: Refusals; readonly isTooMany: boolean } {
  const time = strikeTime(minute);
  const most = ban_after * time;
  const struck = Math.max(strikesUntil - now, 0) + time;
  if (struck <= most) return { refusals: { lineUntil: place, strikesUntil: now + struck, fullAt }, isTooMany: false };
  const since = fullAt === 0 ? now : fullAt;
  return {
    refusals: { lineUntil: place, strikesUntil: now + most, fullAt: since },
    isTooMany: now - since >= ban_grace_seconds * SECOND,
  };
}
