import { DAY, type Level, MILLISECOND, MINUTE, refill } from './bucket.ts';
import type { Secret, Validity } from './credential.ts';
import type { BucketState } from './limiter.ts';
import type { PlanName } from './plans.ts';
import { NO_REFUSALS, type Refusals } from './refusals.ts';
import type { Tags } from './tags.ts';

/**
 * The usage of a key by minute and by day (UTC), derived from the totals that every decision updates anyway. The first
 * decision of a minute stores the totals before it. All other decisions cost only one comparison, and the counts are
 * exact.
 */

/** One hour of full minutes, plus the current one. */
export const MINUTES_KEPT = 61;
/** 35 full days, plus the current one. */
export const DAYS_KEPT = 36;

/** A list grows this long only if the clock is set back repeatedly. */
const MOST_MARKS = 100;

/** The totals before the first decision of a minute, or of a day. */
export interface Mark {
  /** Minutes or days since 1970. */
  readonly at: number;
  readonly admitted: number;
  readonly refused: number;
}

/** The marks that are kept, in the order of their creation. A minute or day without a decision has none. */
interface Usage {
  readonly minutes: readonly Mark[];
  readonly days: readonly Mark[];
}

/** All decisions on a key so far. */
type Totals = Pick<KeyState, 'admitted' | 'refused'>;

/** The UTC date of a day number, counted from 1970-01-01. */
export const dateOf = (day: number): string => new Date((day * DAY) / MILLISECOND).toISOString().slice(0, 10);

/** The decisions in one minute or on one day. */
export type Count = Mark;

export const UNUSED: Usage = { minutes: [], days: [] };

/** The marks of a key for a decision at `now`, in microseconds. The previous decision was at `state.asOf`. */
export const marked = (state: KeyState, now: number): Usage => ({
  minutes: withMark(state.usage.minutes, state, now, MINUTE, MINUTES_KEPT),
  days: withMark(state.usage.days, state, now, DAY, DAYS_KEPT),
});

function withMark(
  marks: readonly Mark[],
  { asOf, admitted, refused }: KeyState,
  now: number,
  unit: number,
  kept: number,
): readonly Mark[] {
  const at = Math.floor(now / unit);
  if (asOf !== undefined && Math.floor(asOf / unit) === at) return marks;
  const first = marks.findIndex((mark) => mark.at > at - kept);
  return [...(first === -1 ? [] : marks.slice(first)), { at, admitted, refused }].slice(-MOST_MARKS);
}

/**
 * The decisions in each minute or on each day with a mark: the difference between this mark and the next one or, for
 * the last mark, the current totals. If the clock was set back, a minute can occur twice; its counts are then added up.
 */
export function countsOf(marks: readonly Mark[], totals: Totals): Count[] {
  const counts = new Map<number, Count>();
  for (const [index, { at, ...from }] of marks.entries()) {
    const to = marks[index + 1] ?? totals;
    const { admitted, refused } = counts.get(at) ?? { admitted: 0, refused: 0 };
    counts.set(at, {
      at,
      admitted: admitted + Math.max(0, to.admitted - from.admitted),
      refused: refused + Math.max(0, to.refused - from.refused),
    });
  }
  return [...counts.values()];
}

/**
 * How much of its day limit a key has used at `now`. Usually, this is the number of missing tokens. After the limit is
 * raised, more tokens are missing than were used, because a raised limit adds none. The result is therefore at most the
 * number of tokens that the requests of yesterday and today can account for. Because the times of yesterday's requests
 * are not known, it can still be too high for a day after the raise, but it is never too low.
 */
export function usedOfDay(
  { limit, tokens }: Pick<BucketState, 'limit' | 'tokens'>,
  { usage, ...totals }: Pick<KeyState, 'usage'> & Totals,
  now: number,
): number {
  // Lists compute this for thousands of keys, and most of them are idle.
  if (tokens === limit) return 0;
  const today = Math.floor(now / DAY);
  const counts = countsOf(usage.days, totals);
  const admitted = (isCounted: (at: number) => boolean) =>
    counts.reduce((sum, count) => (isCounted(count.at) ? sum + count.admitted : sum), 0);
  const atMidnight = { tokens: Math.max(0, limit - admitted((at) => at === today - 1)), fraction: 0 };
  // Days after today are counted too: the clock may have been set back.
  const least = refill(atMidnight, limit, DAY, now - today * DAY).tokens - admitted((at) => at >= today);
  return limit - Math.max(tokens, least);
}

/** The maximum number of characters in the name of a key or a secret. */
export const MAX_KEY_NAME_LENGTH = 100;

/** The record of an API key. Times are Unix time in microseconds. */
export interface KeyRecord extends Validity {
  readonly plan: PlanName;
  readonly name: string;
  /** Never empty. */
  readonly secrets: readonly Secret[];
  readonly createdAt: number;
  /** Limits per minute and per day that override the plan's. */
  readonly minute?: number | undefined;
  readonly day?: number | undefined;
  /** Decisions do not read the tags. */
  readonly tags?: Tags | undefined;
}

/** A level, and the limit in force when it was stored. */
export interface StoredLevel extends Level {
  readonly limit?: number | undefined;
}

/** The part of a key's data that decisions write. */
export interface KeyState {
  readonly minute: StoredLevel;
  readonly day: StoredLevel;
  readonly refusals: Refusals;
  /** The time of the levels above. Undefined before the first decision: the buckets are then full. */
  readonly asOf: number | undefined;
  readonly bannedUntil: number;
  /** The number of bans in the current series. Each is twice as long as the one before. */
  readonly bans: number;
  readonly admitted: number;
  readonly refused: number;
  /** How many admitted requests the limits would have refused without shadow mode. */
  readonly shadowed: number;
  readonly usage: Usage;
  /**
   * The time of the last decision for each secret, by the secret's id and to the minute. Can include removed secrets.
   */
  readonly used: Readonly<Record<string, number>>;
  /** An operator's reason for a ban, with the end of that ban. The reason applies only to a ban with this end. */
  readonly banReason?: BanReason | undefined;
}

interface BanReason {
  readonly text: string;
  readonly until: number;
  /** When the ban was set, in microseconds; undefined if it was set by hand. */
  readonly since?: number | undefined;
}

/** The state of a key before its first decision. That decision fills the buckets. */
export const FRESH: KeyState = {
  minute: { tokens: 0, fraction: 0 },
  day: { tokens: 0, fraction: 0 },
  refusals: NO_REFUSALS,
  asOf: undefined,
  bannedUntil: 0,
  bans: 0,
  admitted: 0,
  refused: 0,
  shadowed: 0,
  usage: UNUSED,
  used: {},
};

/** A key as operators see it, with the results of its decisions. */
export interface KeyEntry extends KeyState {
  readonly id: string;
  /** False if the data allows no decision, for example after a manual edit. */
  readonly isReadable: boolean;
  /** Invalid values, for example after a manual edit. The last good ones are in force. */
  readonly rejected?: readonly { readonly field: string; readonly value: string; readonly kept: string | undefined }[];
  /** Set for a revoked key: only its name, plan and usage are left. */
  readonly isRevoked?: boolean;
  readonly record: Omit<KeyRecord, 'plan'> & { readonly plan: string };
}

/** An operator's change to a key. A member that is present but undefined is removed. */
export interface KeyChange {
  readonly record?: Partial<KeyRecord>;
  /**
   * Sets a ban; 'lift' ends the ban and clears the line, the strikes and the series; 'reset' also fills both buckets.
   * No other change alters levels.
   */
  readonly ban?: BanReason | 'lift' | 'reset';
  /** Whether the change revokes or replaces a secret. */
  readonly isUrgent?: boolean;
}
