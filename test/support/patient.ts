import type { AlertOf } from './alerts.ts';
import { cleanUp } from './clean-up.ts';
import { send } from './http.ts';
import { startLoad } from './paced-load.ts';
import type { Stack } from './stack.ts';

/** A fault that a test causes, and its remedy from deploy/RUNBOOK.md. */
export interface Fault {
  /** The alerts that the fault raises. */
  readonly alerts: readonly AlertOf[];
  cause(): unknown;
  heal(): unknown;
}

/** A system under test, with faults that happen one after another. */
export interface Patient {
  readonly gateways?: readonly string[];
  readonly cores?: readonly string[];
  readonly faults: readonly Fault[];
}

/** Lists pets with these keys in turn until the test ends. */
export function keepAsking(gateway: string, keys: readonly string[], clients: number, pauseMs: number) {
  let turn = 0;
  const load = startLoad(gateway, () => keys[turn++ % keys.length] as string, { clients, pauseMs });
  cleanUp(load.stop);
  return load;
}

/**
 * Sends requests with these keys in turn, whatever their outcome, until the test ends.
 * @returns a function that stops this earlier
 */
export function persist(gateway: string, keys: readonly string[], everyMs: number): () => void {
  let turn = 0;
  const ask = () => void send(`${gateway}/v1/pets`, { key: keys[turn++ % keys.length] }).catch(() => {});
  const asking = setInterval(ask, everyMs);
  const end = () => clearInterval(asking);
  cleanUp(end);
  return end;
}

/** Issues `count` identical keys. */
export const issue = (stack: Stack, count: number, key: Record<string, unknown>) =>
  Promise.all(Array.from({ length: count }, () => stack.issueKey(key)));
