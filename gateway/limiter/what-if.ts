import type { Plan } from './plans.ts';
import type { Count } from './usage-marks.ts';

/**
 * A lower bound of what other limits would have refused. Counts per minute do not show when in the minute requests
 * arrived, so this assumes the best case: full buckets at the beginning, and requests that arrive whenever there is a
 * token. Bans would refuse even more.
 */

const MINUTES_A_DAY = 1_440;

/**
 * @param counts of minutes in any order; minutes without requests may be missing
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
