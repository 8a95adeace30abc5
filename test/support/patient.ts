import type { AlertOf } from './alerts.ts';
import { cleanUp } from './clean-up.ts';
import { send } from './http.ts';
import { startLoad } from './paced-load.ts';
import { hostOf } from './prometheus.ts';
import type { Stack } from './stack.ts';

/** A system under test with faults, which are caused one after another. */
export interface Patient {
  readonly gateways?: readonly string[];
  readonly cores?: readonly string[];
  readonly faults: readonly {
    /** The alerts that the fault raises. */
    readonly alerts: readonly AlertOf[];
    /** May return a function that ends the fault. */
    cause(): unknown;
    /** Applies the remedy from deploy/RUNBOOK.md. Not needed if the function that `cause` returns suffices. */
    heal?(): unknown;
  }[];
}

/** Alerts about the service at this URL. */
export const alertsOf = (url: string, ...names: readonly string[]): AlertOf[] =>
  names.map((alertname) => ({ alertname, instance: hostOf(url) }));

/** Alerts about all gateways together. */
export const sharedAlert = (alertname: string): AlertOf[] => [{ alertname }];

/** Lists pets with these keys in turn until the test ends. */
export function keepAsking(gateway: string, keys: readonly string[], clients: number, pauseMs: number) {
  let turn = 0;
  const load = startLoad(gateway, () => keys[turn++ % keys.length] as string, { clients, pauseMs });
  cleanUp(load.stop);
  return load;
}

/** Calls `act` repeatedly until the test ends. @returns a function that stops it earlier */
export function repeatedly(act: () => unknown, everyMs: number): () => void {
  const acting = setInterval(act, everyMs);
  const end = () => clearInterval(acting);
  cleanUp(end);
  return end;
}

/** Like `repeatedly`, sends requests with these keys in turn, and ignores their outcome. */
export function persist(gateway: string, keys: readonly string[], everyMs: number): () => void {
  let turn = 0;
  return repeatedly(() => send(`${gateway}/v1/pets`, { key: keys[turn++ % keys.length] }).catch(() => {}), everyMs);
}

/** Issues `count` identical keys. */
export const issue = (stack: Stack, count: number, key: Record<string, unknown>) =>
  Promise.all(Array.from({ length: count }, () => stack.issueKey(key)));
