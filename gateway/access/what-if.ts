import type { Limits } from './plans.ts';
import type { Count } from './usage.ts';

/**
 * What other limits would have refused, at the least. Counts by the minute do not tell when in it requests came, so the
 * kindest is assumed: both buckets were full at the beginning, and in every minute requests came when there was a token for
 * them, as far as there were any. Whatever really happened, at least as many would have been refused; and a client that is
 * refused, then banned, has still more refused.
 */

const MINUTES_A_DAY = 1_440;

/**
 * @param counts of some minutes, in any order; those in which nothing was asked may be missing
 * @param limits requests per minute and per day
 */
export function leastRefused(
  counts: readonly Count[],
  { minute, day }: Required<Pick<Limits, 'minute' | 'day'>>,
): number {
  // Both levels in 1/1440 of a request, the share of the day's that one minute brings: all integers.
  const [minuteFull, dayFull] = [minute * MINUTES_A_DAY, day * MINUTES_A_DAY];
  let [minuteLeft, dayLeft, refused] = [minuteFull, dayFull, 0];
  let last: number | undefined;
  for (const count of counts.toSorted((a, b) => a.at - b.at)) {
    const idle = last === undefined ? 0 : count.at - last - 1;
    minuteLeft = Math.min(minuteFull, minuteLeft + idle * minuteFull);
    dayLeft = Math.min(dayFull, dayLeft + idle * day);
    const asked = count.admitted + count.refused;
    // Fewer than that share by the time the minute ends: what comes with its end is the next one's.
    const most = Math.ceil(Math.min(minuteLeft + minuteFull, dayLeft + day) / MINUTES_A_DAY) - 1;
    const admitted = Math.min(asked, most);
    refused += asked - admitted;
    minuteLeft = Math.min(minuteFull, minuteLeft + minuteFull - admitted * MINUTES_A_DAY);
    dayLeft = Math.min(dayFull, dayLeft + day - admitted * MINUTES_A_DAY);
    last = count.at;
  }
  return refused;
}
