/** Words that the command line and the console share. */

/** A running ban, as answers describe it. */
export interface RunningBan {
  readonly bannedUntil?: string | undefined;
  readonly banReason?: string | undefined;
  readonly bans: number;
  readonly banRefused?: number | undefined;
}

const ORDINALS = ['first', 'second', 'third', 'fourth', 'fifth', 'sixth', 'seventh', 'eighth', 'ninth', 'tenth'];
const NUMBER = new Intl.NumberFormat('en-US');

/**
 * What follows `banned until`, such as `14:05 (in 3 min), second ban in a row, refused 1,204 since`. Only bans by
 * decisions come in a row.
 * @param until the time in the reader's format
 */
export function banInWords({ bannedUntil = '', banReason, bans, banRefused }: RunningBan, until: string): string {
  const which = ORDINALS[bans - 1] === undefined ? `ban ${bans}` : `${ORDINALS[bans - 1]} ban`;
  const ofSeries = banReason === undefined && bans > 0 ? [bans === 1 ? which : `${which} in a row`] : [];
  const refused = banRefused === undefined ? [] : [`refused ${NUMBER.format(banRefused)} since`];
  const left = shortLength((Date.parse(bannedUntil) - Date.now()) / 1_000);
  return [`${until} (in ${left})`, ...ofSeries, ...refused].join(', ');
}

/** Describes a key whose limit is too small for its clients. */
export const tooSmallInWords = (waitSeconds = 0): string =>
  `too small for its clients: a refused request waits ${shortLength(waitSeconds)}`;

/** Units of time, in seconds. */
export const UNITS = [
  { unit: 86_400, name: 'day', short: 'd' },
  { unit: 3_600, name: 'hour', short: 'h' },
  { unit: 60, name: 'minute', short: 'min' },
  { unit: 1, name: 'second', short: 's' },
] as const;

/** A duration, rounded, in the largest unit of which it has at least one. */
export function inLargestUnit(seconds: number): (typeof UNITS)[number] & { readonly count: number } {
  const whole = Math.max(0, Math.round(seconds));
  const largest = UNITS.find(({ unit }) => whole >= unit) ?? UNITS[3];
  return { ...largest, count: Math.round(whole / largest.unit) };
}

/** Formats a duration, such as `5 min`. */
export function shortLength(seconds: number): string {
  const { count, short } = inLargestUnit(seconds);
  return `${count} ${short}`;
}

/** Whether TZ names no zone that this machine knows. Times are in UTC then. */
export const isZoneUnknown = (): boolean =>
  [undefined, 'Etc/Unknown'].includes(new Intl.DateTimeFormat().resolvedOptions().timeZone) &&
  new Date().getTimezoneOffset() === 0;

const PARTS = ['decision', 'waiting', 'core', 'sending'] as const;

/** Describes how the time of a request is split; undefined if it reached no part. @param write formats a duration */
export function timesInWords(
  times: { readonly [part in (typeof PARTS)[number]]?: number | undefined },
  write: (ms: number) => string,
): string | undefined {
  const parts = PARTS.flatMap((part) => (times[part] === undefined ? [] : [`${part} ${write(times[part])}`]));
  return parts.length === 0 ? undefined : parts.join(', ');
}
