import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Acts at once and then at intervals, until the signal is aborted. Never rejects: after a failed action, the next one
 * follows.
 */
export async function repeat(everyMs: number, signal: AbortSignal, act: () => Promise<unknown>): Promise<void> {
  while (!signal.aborted) {
    await act().catch(() => undefined);
    await sleep(everyMs, undefined, { signal, ref: false }).catch(() => undefined);
  }
}
