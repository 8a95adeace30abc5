import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { ALERT_NAMES, ALERTS, type AlertOf, type AlertWatch, hasten, watchAlerts } from '../support/alerts.ts';
import { cleanUp } from '../support/clean-up.ts';
import { coreBehindGateway, coreWithBadStore } from '../support/failing-cores.ts';
import { gatewayAlone, gatewayWithBadPlans, gatewayWithWorkers } from '../support/failing-gateways.ts';
import { gatewayWithBadKeys } from '../support/failing-keys.ts';
import {
  gatewayOnFullMachine,
  gatewayWithCertificate,
  gatewayWithCoreName,
  gatewayWithFewConnections,
  gatewayWithWebhooks,
} from '../support/failing-surroundings.ts';
import type { Patient } from '../support/patient.ts';
import { startPrometheus } from '../support/prometheus.ts';
import { startRedisServer } from '../support/redis.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { TIMED } from '../support/timed.ts';
import { eventually } from '../support/workers.ts';

/** The state of each alert that the faults should raise: before, during and after the faults. */
async function suffer({ faults }: Patient, watch: AlertWatch): Promise<[name: string, seen: string[]][]> {
  const seen = new Map<string, string[]>();
  const see = async (alert: AlertOf, is: 'quiet' | 'firing') => {
    const told = await (is === 'quiet' ? watch.isQuiet(alert) : watch.fires(alert)).then(
      () => is,
      ({ message }: Error) => message,
    );
    seen.set(alert.alertname, [...(seen.get(alert.alertname) ?? []), told]);
  };
  const all = (alerts: readonly AlertOf[] = [], is: 'quiet' | 'firing') =>
    Promise.all(alerts.map((alert) => see(alert, is)));
  await all(faults[0]?.alerts, 'quiet');
  for (const [at, { alerts, cause, heal }] of faults.entries()) {
    await cause();
    await all(alerts, 'firing');
    await heal();
    // When this fault is over, so is all that the next one is to raise.
    await Promise.all([all(alerts, 'quiet'), all(faults[at + 1]?.alerts, 'quiet')]);
  }
  return [...seen];
}

/** Two groups, each with a Redis and a Prometheus of its own: some alerts do not say of which gateway they are. */
const GROUPS: readonly (() => Promise<Patient[]>)[] = [
  async () => [
    ...(await Promise.all([gatewayAlone(await emptyDatabase()), gatewayWithWorkers(), gatewayWithBadPlans()])),
    ...(await Promise.all([coreBehindGateway(), coreWithBadStore()])),
  ],
  async () => [
    ...(await Promise.all([gatewayWithBadKeys(await ownRedis()), gatewayWithCertificate(), gatewayWithCoreName()])),
    ...(await Promise.all([gatewayWithWebhooks(), gatewayWithFewConnections(), gatewayOnFullMachine()])),
  ],
];

async function ownRedis() {
  const server = await startRedisServer();
  cleanUp(server.stop);
  const redis = new Redis(server.url);
  cleanUp(() => redis.disconnect());
  return { url: server.url, redis };
}

async function sufferBesideEachOther(patients: readonly Patient[]): Promise<[name: string, seen: string[]][]> {
  const prometheus = await startPrometheus(
    {
      gateway: patients.flatMap(({ gateways = [] }) => gateways),
      core: patients.flatMap(({ cores = [] }) => cores),
    },
    // A short condition, such as a stall, is reported late because of the stall itself. It must be evaluated before the
    // next scrape.
    { scrapeEvery: '500ms', judgeEvery: '200ms', alerts: hasten },
  );
  const watch = watchAlerts(prometheus);
  const targets = patients.flatMap(({ gateways = [], cores = [] }) => [...gateways, ...cores]).length;
  const up = async () => (await prometheus.query('sum(up)')).map(({ value }) => Number(value[1]));
  await eventually(up).toEqual([targets]);
  return (await Promise.all(patients.map((patient) => suffer(patient, watch)))).flat();
}

test('each alert fires when its fault occurs, and ends after the steps of the runbook', {
  ...TIMED,
  timeout: 300_000,
}, async () => {
  const groups = [];
  for (const start of GROUPS) groups.push(await start());
  const seen = (await Promise.all(groups.map(sufferBesideEachOther))).flat();
  expect(Object.fromEntries(seen)).toEqual(
    Object.fromEntries(ALERT_NAMES.map((name) => [name, ['quiet', 'firing', 'quiet']])),
  );
});

test('the accelerated rules are the shipped ones, except for times', () => {
  expect(hasten(ALERTS)).not.toMatch(/\b\d+[mh]\b/);
  expect(hasten(ALERTS).replaceAll(/\b[05]s\b/g, '')).toBe(ALERTS.replaceAll(/\b\d+[mh]\b/g, ''));
});
