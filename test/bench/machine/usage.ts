import { readdirSync, readFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { sum } from '../../support/statistics.ts';

/** Resource usage of processes, from the kernel's counters in /proc. */

/** The resources that a process and its descendants have used so far: user and system time, and memory. */
export function usageOf(pid: number) {
  const pids = withChildren(pid);
  return {
    cpuMicroseconds: sum(pids.map(cpuMicroseconds)),
    residentMegabytes: sum(pids.map(residentMegabytes)),
  };
}

/**
 * `schedstat` counts the same time as utime and stime of `stat`, but in nanoseconds instead of ticks of 10 ms. Ticks
 * are too coarse for a round of two seconds, in which Redis uses only a few.
 */
function cpuMicroseconds(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  return sum(threads.map((thread) => Number(read(`/proc/${pid}/task/${thread}/schedstat`).split(' ')[0]))) / 1_000;
}

function residentMegabytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(read(`/proc/${pid}/status`))?.[1] ?? 0) / 1_024;
}

/** A process and its descendants. */
export function withChildren(pid: number): number[] {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
    read(`/proc/${pid}/task/${thread}/children`).split(' ').filter(Boolean).map(Number),
  );
  return [pid, ...children.flatMap(withChildren)];
}

/** Returns '' for a thread that has exited in the meantime. */
function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** Describes the machine in one line. */
export function describeMachine(): string {
  const [processor] = cpus();
  const gigabytes = Math.round(totalmem() / 2 ** 30);
  return `${cpus().length} × ${processor?.model.trim()}, ${gigabytes} GB, Linux ${release()}, Node ${process.version}`;
}
