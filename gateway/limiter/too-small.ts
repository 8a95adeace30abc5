import { MINUTE } from './clock.ts';
import type { KeyState } from './key-record.ts';
import { LINE_MINUTES } from './refusals.ts';
import { countsOf, MINUTES_KEPT } from './usage-marks.ts';

/** A key counts as too small if its line was longer than a minute in this many minutes. */
const STOOD_MINUTES = 10;

/**
 * Whether the minute limit of a key is too small for its clients. The line at the end of each minute follows from the
 * refusals before: each one adds a token's time, and the line shrinks as time passes.
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
