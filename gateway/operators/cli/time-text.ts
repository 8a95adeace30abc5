/**
 * Formats times of answers for their reader: on a terminal in its time zone with the offset, in a pipe unchanged (RFC
 * 3339, UTC). Every command can read them back.
 */

interface Output {
  readonly isTTY?: boolean;
}

/** Formats a time to the second on a terminal. */
export const timeText = (time: string, output: Output = process.stdout): string =>
  output.isTTY ? local(time, '2030-12-31T00:00:00'.length) : time;

/** Formats a time to the millisecond on a terminal, for events that occur many times a second. */
export const preciseTimeText = (time: string, output: Output = process.stdout): string =>
  output.isTTY ? local(time, '2030-12-31T00:00:00.000'.length) : time;

const MINUTE_MS = 60_000;

function local(time: string, length: number): string {
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return time;
  const minutes = -at.getTimezoneOffset();
  const clock = new Date(at.getTime() + minutes * MINUTE_MS).toISOString().slice(0, length).replace('T', ' ');
  return `${clock} ${minutes < 0 ? '-' : '+'}${new Date(Math.abs(minutes) * MINUTE_MS).toISOString().slice(11, 16)}`;
}
