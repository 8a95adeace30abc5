import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { cleanUp } from './clean-up.ts';
import { PROMETHEUS_FOLDER, type Prometheus } from './prometheus.ts';

/** The shipped alert rules. */
export const ALERTS = readFileSync(join(PROMETHEUS_FOLDER, 'rules/alerts.yml'), 'utf8');

/** The names of these alerts, in order. */
export const ALERT_NAMES = [...ALERTS.matchAll(/^ {6}- alert: (\w+)$/gm)].map(([, name]) => name as string);

/** Changes rules so that alerts fire at once and look back at most five seconds. */
export const hasten = (rules: string): string =>
  rules
    .replaceAll(/^( +for:) \w+$/gm, '$1 0s')
    .replaceAll(/\[\d+[mh]\]/g, '[5s]')
    .replaceAll(/ offset \d+m\b/g, ' offset 5s');

const LOOK_EVERY_MS = 100;
/** Must be longer than the evaluation interval, so that a flapping alert does not count as resolved. */
const QUIET_MS = 1_500;
/** An idle machine needs about a second; a busy one needs much longer. */
const LONGEST_MS = 90_000;

type Labels = Readonly<Record<string, string>>;

/** An alert: its name, and the labels that distinguish it. */
export interface AlertOf extends Labels {
  readonly alertname: string;
}

export type AlertWatch = ReturnType<typeof watchAlerts>;

/** Polls the firing alerts continuously, so that even a short one is noticed. */
export function watchAlerts(prometheus: Prometheus) {
  const watchers = new Set<() => void>();
  let firing: readonly Labels[] = [];
  /** All alerts so far, with the time at which they last fired. */
  const fired = new Map<string, { readonly labels: Labels; readonly at: number }>();
  const begun = performance.now();
  let running = true;
  const look = async () => {
    const { alerts } = (await prometheus.api('/alerts')) as { alerts: { labels: Labels; state: string }[] };
    firing = alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels);
    for (const labels of firing) fired.set(JSON.stringify(labels), { labels, at: performance.now() });
    for (const notify of watchers) notify();
  };
  void (async () => {
    for (; running; await sleep(LOOK_EVERY_MS)) await look().catch(() => {});
  })();
  cleanUp(() => {
    running = false;
  });

  function until(isReached: () => boolean, failed: string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => reject(new Error(failed)), LONGEST_MS);
    const watch = () => isReached() && resolve();
    watchers.add(watch);
    return promise.finally(() => {
      clearTimeout(timer);
      watchers.delete(watch);
    });
  }
  return {
    /** Resolves once the alert fires. @throws {Error} if it does not fire within a minute and a half */
    fires: (alert: AlertOf) => until(() => firing.some(isOf(alert)), 'the alert does not fire'),
    /**
     * Resolves once the alert has been quiet for a while. @throws {Error} if it still fires after a minute and a half
     */
    isQuiet(alert: AlertOf) {
      const times = () => [...fired.values()].filter(({ labels }) => isOf(alert)(labels)).map(({ at }) => at);
      return until(() => performance.now() - Math.max(begun, ...times()) >= QUIET_MS, 'the alert keeps firing');
    },
  };
}

const isOf =
  (wanted: Labels) =>
  (labels: Labels): boolean =>
    Object.entries(wanted).every(([name, value]) => labels[name] === value);
