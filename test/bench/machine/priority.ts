import { writeFileSync } from 'node:fs';

/** How processor time is shared between the processes of a run, by nice values. */

/** Above whatever else the machine does; only root may have that. */
export const FIRST = process.getuid?.() === 0 ? -10 : 0;
/** Far below that, and not below the rest of the machine where that can be had otherwise: it is to have some time. */
export const LAST = FIRST < 0 ? 0 : 19;

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
