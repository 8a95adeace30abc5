import type { AlertOf } from './alerts.ts';
import { cleanUp } from './clean-up.ts';
import { startLoad } from './paced-load.ts';
import type { Stack } from './stack.ts';

/** Something that goes wrong, and what deploy/RUNBOOK.md says to do about it. */
export interface Fault {
  /** What it raises. */
  readonly alerts: readonly AlertOf[];
  cause(): unknown;
  heal(): unknown;
}

/** What fails beside others, and by itself in one way after the other. */
export interface Patient {
  readonly gateways?: readonly string[];
  readonly cores?: readonly string[];
  readonly faults: readonly Fault[];
}

/** Asks for lists with these keys in turn until the test ends. */
export function keepAsking(gateway: string, keys: readonly string[], clients: number, pauseMs: number) {
  let turn = 0;
  const load = startLoad(gateway, () => keys[turn++ % keys.length] as string, { clients, pauseMs });
  cleanUp(load.stop);
  return load;
}

/** Issues so many keys that are alike. */
export const issue = (stack: Stack, count: number, key: Record<string, unknown>) =>
  Promise.all(Array.from({ length: count }, () => stack.issueKey(key)));
