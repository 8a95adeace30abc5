import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Milliseconds until the next multiple of `everyMs` on the clock of this process, but at least half of `everyMs`. A
 * process then does all its periodic work at the same times, so that it wakes less often when idle.
 */
function untilNext(everyMs: number): number {
  const left = everyMs - (performance.now() % everyMs);
  return left < everyMs / 2 ? left + everyMs : left;
}

/** Calls `act` at intervals, without keeping the process alive. @returns a function that stops the calls */
export function every(ms: number, act: () => unknown): () => void {
  let timer: NodeJS.Timeout;
  const wait = () => {
    timer = setTimeout(run, untilNext(ms)).unref();
  };
  const run = () => {
    wait();
    act();
  };
  wait();
  return () => clearTimeout(timer);
}

/**
 * Calls `act` at once and then at intervals, until the signal is aborted. Never rejects: after a failed call, the next
 * one follows.
 */
export async function repeat(everyMs: number, signal: AbortSignal, act: () => Promise<unknown>): Promise<void> {
  while (!signal.aborted) {
    await act().catch(() => undefined);
    await sleep(untilNext(everyMs), undefined, { signal, ref: false }).catch(() => undefined);
  }
}
