import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Milliseconds until the next multiple of `everyMs` on the clock of this process, and at least half of it. What a
 * process does at intervals then happens together, so that an idle process wakes less often.
 */
export function untilNext(everyMs: number): number {
  const left = everyMs - (performance.now() % everyMs);
  return left < everyMs / 2 ? left + everyMs : left;
}

/** Calls at intervals, without keeping the process alive. @returns a function that ends it */
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
 * Acts at once and then at intervals, until the signal is aborted. Never rejects: after a failed action, the next one
 * follows.
 */
export async function repeat(everyMs: number, signal: AbortSignal, act: () => Promise<unknown>): Promise<void> {
  while (!signal.aborted) {
    await act().catch(() => undefined);
    await sleep(untilNext(everyMs), undefined, { signal, ref: false }).catch(() => undefined);
  }
}
