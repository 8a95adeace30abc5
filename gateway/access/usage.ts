import { DAY, MINUTE } from './verdict.ts';

/**
 * How much a key was used, minute by minute and day by day (UTC), from the totals that every decision adds to anyway: the
 * first decision of a minute notes what they were before it. So a decision costs no more than a comparison, and what is
 * counted is exactly what was decided.
 */

/** An hour of whole minutes, and the one that runs. */
export const MINUTES_KEPT = 61;
/** 35 whole days, and the one that runs. */
export const DAYS_KEPT = 36;

/** Only a clock that is set back again and again makes so many. */
const MOST_MARKS = 100;

/** The totals before the first decision of a minute, or of a day. */
export interface Mark {
  /** Minutes, or days, since 1970. */
  readonly at: number;
  readonly admitted: number;
  readonly refused: number;
}

/** The marks of the time that is kept, in the order in which they were made. A minute or a day in which nothing was decided has none. */
export interface Usage {
  readonly minutes: readonly Mark[];
  readonly days: readonly Mark[];
}

/** What was decided of a key in all. */
export interface Totals {
  readonly admitted: number;
  readonly refused: number;
}

/** Of a key's state, what marks are made from. */
interface Used extends Totals {
  readonly usage: Usage;
  /** Of the last decision, in microseconds. */
  readonly asOf: number | undefined;
}

/** What was decided in one minute, or on one day. */
export type Count = Mark;

export const UNUSED: Usage = { minutes: [], days: [] };

/** The marks of a key that is decided on at `now`, microseconds, and was last at `state.asOf`. */
export function marked({ usage, asOf, ...totals }: Used, now: number): Usage {
  return {
    minutes: withMark(usage.minutes, totals, asOf, now, MINUTE, MINUTES_KEPT),
    days: withMark(usage.days, totals, asOf, now, DAY, DAYS_KEPT),
  };
}

function withMark(
  marks: readonly Mark[],
  { admitted, refused }: Totals,
  asOf: number | undefined,
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
 * What was decided in each minute, or on each day, that has a mark: the difference to the next mark, for the last one to
 * the totals as they are. A clock that was set back can come by the same minute again; its counts are then one.
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
