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
    .replaceAll(/\[\d+m\]/g, '[5s]')
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
  const watchers = new Set<(firing: readonly Labels[]) => void>();
  let running = true;
  const look = async () => {
    const { alerts } = (await prometheus.api('/alerts')) as { alerts: { labels: Labels; state: string }[] };
    const firing = alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels);
    for (const notify of watchers) notify(firing);
  };
  void (async () => {
    for (; running; await sleep(LOOK_EVERY_MS)) await look().catch(() => {});
  })();
  cleanUp(() => {
    running = false;
  });

  function until(isReached: (firing: readonly Labels[]) => boolean, failed: string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => reject(new Error(failed)), LONGEST_MS);
    const watch = (firing: readonly Labels[]) => isReached(firing) && resolve();
    watchers.add(watch);
    return promise.finally(() => {
      clearTimeout(timer);
      watchers.delete(watch);
    });
  }
  return {
    /** Resolves once the alert fires. @throws {Error} if it does not fire within a minute and a half */
    fires: (alert: AlertOf) => until((firing) => firing.some(isOf(alert)), 'the alert does not fire'),
    /**
     * Resolves once the alert has been quiet for a while. @throws {Error} if it still fires after a minute and a half
     */
    isQuiet(alert: AlertOf) {
      let since = performance.now();
      return until((firing) => {
        if (firing.some(isOf(alert))) since = performance.now();
        return performance.now() - since >= QUIET_MS;
      }, 'the alert keeps firing');
    },
  };
}

const isOf =
  (wanted: Labels) =>
  (labels: Labels): boolean =>
    Object.entries(wanted).every(([name, value]) => labels[name] === value);
