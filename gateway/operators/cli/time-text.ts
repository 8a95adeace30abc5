/** Times of answers, for their reader: local on a terminal, unchanged (RFC 3339, UTC) in a pipe. */

interface Output {
  readonly isTTY?: boolean;
}

/** To the second on a terminal. */
export const timeText = (time: string, output: Output = process.stdout): string => (output.isTTY ? local(time) : time);

/** To the millisecond on a terminal, for what happens many times a second. */
export const preciseTimeText = (time: string, output: Output = process.stdout): string =>
  output.isTTY ? `${local(time)}.${(/\.(\d{3})/.exec(time)?.[1] ?? '').padEnd(3, '0')}` : time;

/** As ISO 8601 writes local times, with a space. */
const LOCAL = new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium' });

function local(time: string): string {
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? time : LOCAL.format(at);
}
