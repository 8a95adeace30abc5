import { writeFileSync } from 'node:fs';

/** How processor time is shared between the processes of a run, by nice values. */

const isRoot = process.getuid?.() === 0;
/** Above whatever else the machine does, where we may: only root may go below 0. */
export const FIRST = isRoot ? -10 : 0;
/** Has at most a third of the time that one at FIRST has, where there is not enough for all. */
export const LAST = isRoot ? -5 : 19;

/** The command line that starts a program at a priority. */
export const atPriority = (nice: number, args: readonly string[]): string[] => ['nice', '-n', String(nice), ...args];

/** Where the kernel shares time between sessions first (sched(7), autogroup), a nice value counts in its session only. */
export function setSessionPriority(pid: number, nice: number): void {
  try {
    writeFileSync(`/proc/${pid}/autogroup`, String(nice));
  } catch {
    // The kernel knows no such groups, or we may not.
  }
}
