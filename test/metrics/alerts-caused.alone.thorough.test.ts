import { expect, test } from 'vitest';
import { ALERT_NAMES, ALERTS, type AlertOf, type AlertWatch, hasten, watchAlerts } from '../support/alerts.ts';
import { coreBehindGateway, coreWithBadStore } from '../support/failing-cores.ts';
import {
  gatewayAlone,
  gatewayWithBadKeys,
  gatewayWithBadPlans,
  gatewayWithoutRedis,
  gatewayWithWorkers,
} from '../support/failing-gateways.ts';
import {
  gatewayOnFullMachine,
  gatewayWithCertificate,
  gatewayWithCoreName,
  gatewayWithFewConnections,
  gatewayWithWebhooks,
} from '../support/failing-surroundings.ts';
import type { Patient } from '../support/patient.ts';
import { startPrometheus } from '../support/prometheus.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { TIMED } from '../support/timed.ts';
import { eventually } from '../support/workers.ts';

/** Causes the faults in turn. @returns the state of each alert before, during and after its fault */
async function suffer({ faults }: Patient, watch: AlertWatch): Promise<[name: string, seen: string[]][]> {
  const seen = new Map<string, string[]>();
  const see = async (alert: AlertOf, is: 'quiet' | 'firing') => {
    const reported = await (is === 'quiet' ? watch.isQuiet(alert) : watch.fires(alert)).then(
      () => is,
      ({ message }: Error) => message,
    );
    seen.set(alert.alertname, [...(seen.get(alert.alertname) ?? []), reported]);
  };
  for (const { alerts, cause, heal } of faults) {
    await Promise.all(alerts.map((alert) => see(alert, 'quiet')));
    const end = await cause();
    await Promise.all(alerts.map((alert) => see(alert, 'firing')));
    if (heal !== undefined) await heal();
    else if (typeof end === 'function') await end();
    await Promise.all(alerts.map((alert) => see(alert, 'quiet')));
  }
  return [...seen];
}

/** Two groups, because a machine with two CPUs cannot run all systems at once. */
const GROUPS: Readonly<Record<string, () => Promise<Patient[]>>> = {
  'gateways, plans and cores': async () => [
    ...(await Promise.all([gatewayAlone(await emptyDatabase()), gatewayWithWorkers(), gatewayWithBadPlans()])),
    ...(await Promise.all([gatewayWithoutRedis(), coreBehindGateway(), coreWithBadStore()])),
  ],
  'keys and surroundings': async () => [
    ...(await gatewayWithBadKeys(await emptyDatabase())),
    ...(await Promise.all([gatewayWithCertificate(), gatewayWithCoreName()])),
    ...(await Promise.all([gatewayWithWebhooks(), gatewayWithFewConnections(), gatewayOnFullMachine()])),
  ],
};
const caused = new Set<string>();

test.for(Object.entries(GROUPS))(
  'an alert fires when its fault occurs and resolves after the steps of the runbook: %s',
  {
    ...TIMED,
    timeout: 300_000,
  },
  async ([, start]) => {
    const patients = await start();
    const prometheus = await startPrometheus(
      {
        gateway: patients.flatMap(({ gateways = [] }) => gateways),
        core: patients.flatMap(({ cores = [] }) => cores),
      },
      // A short fault, such as a stall, delays the scrape that would show it. Rules must be evaluated before the next
      // scrape hides it.
      { scrapeEvery: '500ms', judgeEvery: '200ms', alerts: hasten },
    );
    const watch = watchAlerts(prometheus);
    const targets = patients.flatMap(({ gateways = [], cores = [] }) => [...gateways, ...cores]).length;
    const up = async () => (await prometheus.query('sum(up)')).map(({ value }) => Number(value[1]));
    await eventually(up).toEqual([targets]);
    const seen = (await Promise.all(patients.map((patient) => suffer(patient, watch)))).flat();
    for (const [name] of seen) caused.add(name);
    expect(Object.fromEntries(seen)).toEqual(
      Object.fromEntries(seen.map(([name]) => [name, ['quiet', 'firing', 'quiet']])),
    );
  },
);

test('each shipped alert is raised by one of these faults', () => {
  expect([...caused].sort()).toEqual(ALERT_NAMES.toSorted());
});

test('the accelerated rules differ from the shipped ones only in times', () => {
  expect(hasten(ALERTS)).not.toMatch(/\b\d+[mh]\b/);
  expect(hasten(ALERTS).replaceAll(/\b[05]s\b/g, '')).toBe(ALERTS.replaceAll(/\b\d+[mh]\b/g, ''));
});
