import { MINUTE } from './bucket.ts';
import { type Count, countsOf, type KeyState, MINUTES_KEPT } from './key-record.ts';
import type { Plan } from './plans.ts';
import { LINE_MINUTES } from './refusals.ts';

/**
 * A lower bound on the number of requests that other limits would have refused. Counts per minute do not show when in
 * the minute requests arrived, so this assumes the best case. Buckets are full at the beginning, and requests arrive
 * whenever there is a token. Bans would refuse even more.
 */

const MINUTES_A_DAY = 1_440;

/**
 * @param counts by minute, in any order; minutes without requests may be missing
 * @param limits requests per minute and per day
 */
export function leastRefused(
  counts: readonly Count[],
  { minute, day }: Required<Pick<Plan, 'minute' | 'day'>>,
): number {
  // Both levels count in 1/1440 of a request, one minute's share of a daily request, so all numbers are integers.
  const [minuteFull, dayFull] = [minute * MINUTES_A_DAY, day * MINUTES_A_DAY];
  let [minuteLeft, dayLeft, refused] = [minuteFull, dayFull, 0];
  let last: number | undefined;
  for (const count of counts.toSorted((a, b) => a.at - b.at)) {
    const idle = last === undefined ? 0 : count.at - last - 1;
    minuteLeft = Math.min(minuteFull, minuteLeft + idle * minuteFull);
    dayLeft = Math.min(dayFull, dayLeft + idle * day);
    const asked = count.admitted + count.refused;
    // A token that arrives exactly at the end of the minute belongs to the next one.
    const most = Math.ceil(Math.min(minuteLeft + minuteFull, dayLeft + day) / MINUTES_A_DAY) - 1;
    const admitted = Math.min(asked, most);
    refused += asked - admitted;
    minuteLeft = Math.min(minuteFull, minuteLeft + minuteFull - admitted * MINUTES_A_DAY);
    dayLeft = Math.min(dayFull, dayLeft + day - admitted * MINUTES_A_DAY);
    last = count.at;
  }
  return refused;
}

/** The limit of a key counts as too low if its line was longer than a minute for more than this many minutes. */
const STOOD_MINUTES = 10;

/**
 * Whether the minute limit of a key is too low for its clients. The line at the end of each minute is computed from the
 * refusals up to then: each refusal adds the time of one token, and the line shrinks as time passes.
 * @param now in microseconds
 */
export function isTooSmall({ refusals, minute, usage, ...totals }: KeyState, now: number): boolean {
  const { limit = 0 } = minute;
  if (refusals.lineUntil - now <= MINUTE || limit === 0) return false;
  const thisMinute = Math.floor(now / MINUTE);
  const refused = new Map(countsOf(usage.minutes, totals).map((count) => [count.at, count.refused]));
  let [line, stood] = [0, 0];
  for (let at = thisMinute - MINUTES_KEPT; at < thisMinute; at++) {
    const longest = Math.min(line + ((refused.get(at) ?? 0) * MINUTE) / limit, LINE_MINUTES * MINUTE);
    line = Math.max(0, longest - MINUTE);
    stood = line > MINUTE ? stood + 1 : 0;
  }
  return stood > STOOD_MINUTES;
}
