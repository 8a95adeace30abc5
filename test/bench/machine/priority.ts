import { writeFileSync } from 'node:fs';

/** The nice values that divide CPU time among the processes of a run. */

const isRoot = process.getuid?.() === 0;
/** A higher priority than other processes have, if permitted: only root may set a negative nice value. */
export const FIRST = isRoot ? -10 : 0;
/** Gets at most a third of the CPU time of FIRST when CPU time is scarce. */
export const LAST = isRoot ? -5 : 19;

/** The command line that starts a program at a priority. */
export const atPriority = (nice: number, args: readonly string[]): string[] => ['nice', '-n', String(nice), ...args];

/**
 * If the kernel shares time between sessions first (sched(7), autogroup), a nice value counts only within its session.
 */
export function setSessionPriority(pid: number, nice: number): void {
  try {
    writeFileSync(`/proc/${pid}/autogroup`, String(nice));
  } catch {
    // The kernel has no such groups, or does not permit this.
  }
}
