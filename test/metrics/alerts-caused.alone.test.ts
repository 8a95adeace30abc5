import { expect, test } from 'vitest';
import { ALERT_NAMES, ALERTS, type AlertOf, type AlertWatch, hasten, watchAlerts } from '../support/alerts.ts';
import { coreBehindGateway, coreWithBadStore } from '../support/failing-cores.ts';
import { gatewayAlone, gatewayWithBadPlans, gatewayWithWorkers } from '../support/failing-gateways.ts';
import type { Patient } from '../support/patient.ts';
import { startPrometheus } from '../support/prometheus.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { TIMED } from '../support/timed.ts';
import { eventually } from '../support/workers.ts';

/** What was seen of each alert that a patient's faults should raise: before, while they are there, and after. */
async function suffer({ faults }: Patient, watch: AlertWatch): Promise<[name: string, seen: string[]][]> {
  const seen = new Map<string, string[]>();
  const see = async (alert: AlertOf, is: 'quiet' | 'firing') => {
    const told = await (is === 'quiet' ? watch.isQuiet(alert) : watch.fires(alert)).then(
      () => is,
      ({ message }: Error) => message,
    );
    seen.set(alert.alertname, [...(seen.get(alert.alertname) ?? []), told]);
  };
  for (const { alerts, cause, heal } of faults) {
    await Promise.all(alerts.map((alert) => see(alert, 'quiet')));
    await cause();
    await Promise.all(alerts.map((alert) => see(alert, 'firing')));
    await heal();
    await Promise.all(alerts.map((alert) => see(alert, 'quiet')));
  }
  return [...seen];
}

test('every alert fires when its fault is there, and is over once the runbook was followed', {
  ...TIMED,
  timeout: 300_000,
}, async () => {
  const patients = await Promise.all([
    gatewayAlone(await emptyDatabase()),
    gatewayWithWorkers(),
    gatewayWithBadPlans(),
    coreBehindGateway(),
    coreWithBadStore(),
  ]);
  const raised = patients.flatMap(({ faults }) => faults.flatMap(({ alerts }) => alerts));
  expect(raised.map(({ alertname }) => alertname).sort()).toEqual(ALERT_NAMES.toSorted());

  const prometheus = await startPrometheus(
    {
      gateway: patients.flatMap(({ gateways = [] }) => gateways),
      core: patients.flatMap(({ cores = [] }) => cores),
    },
    // What holds for one look only, as a stall does, and is told late, because of the stall, must be judged before the next.
    { scrapeEvery: '500ms', judgeEvery: '200ms', alerts: hasten },
  );
  const watch = watchAlerts(prometheus);
  const targets = patients.flatMap(({ gateways = [], cores = [] }) => [...gateways, ...cores]).length;
  const up = async () => (await prometheus.query('sum(up)')).map(({ value }) => Number(value[1]));
  await eventually(up).toEqual([targets]);
  const seen = (await Promise.all(patients.map((patient) => suffer(patient, watch)))).flat();
  const wanted = ALERT_NAMES.map((name) => [name, ['quiet', 'firing', 'quiet']]);
  expect(Object.fromEntries(seen)).toEqual(Object.fromEntries(wanted));
});

test('the hastened rules are those that are shipped, but for times', () => {
  expect(hasten(ALERTS)).not.toMatch(/\b\d+[mh]\b/);
  expect(hasten(ALERTS).replaceAll(/\b[05]s\b/g, '')).toBe(ALERTS.replaceAll(/\b\d+m\b/g, ''));
});
