import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import { ALERT_NAMES, ALERTS } from '../support/alerts.ts';
import { need } from '../support/install.ts';
import { ROOT } from '../support/process.ts';
import { PROMETHEUS_FOLDER } from '../support/prometheus.ts';
import { temporaryFolder } from '../support/stack.ts';

/** Series with one value per minute in promtool's notation: `0+60x30` begins with 0 and grows by 60 thirty times. */
type History = Readonly<Record<string, string>>;

interface AlertHistories {
  readonly fires: readonly History[];
  /** Near misses, and faults that pass by themselves. */
  readonly stays: readonly History[];
}

const UP = { 'up{job="gateway",instance="a"}': '1x30', 'up{job="core",instance="c"}': '1x30' };
const coreRequests = (operation: string, status: string) =>
  `core_requests_total{operation="${operation}",status="${status}",instance="c"}`;
const UNREACHABLE = 'gateway_upstream_errors_total{instance="a",core="http://c",kind="unreachable"}';
const STORE_ERRORS = 'core_store_errors_total{instance="c",kind="unavailable"}';
const requests = (status: string) => `gateway_requests_total{operation="listPets",status="${status}",plan="pro"}`;
const decisions = (outcome: string, plan: string) => `gateway_decisions_total{outcome="${outcome}",plan="${plan}"}`;
const decidedWithin = (le: string) => `gateway_decision_duration_seconds_bucket{instance="a",le="${le}"}`;
const FULL = 'gateway_upstream_errors_total{instance="a",core="http://c",kind="full"}';
const SHED = 'gateway_requests_without_decision_total{instance="a",reason="shed"}';
const LAG = 'nodejs_eventloop_lag_max_seconds{job="gateway",instance="a"}';
const DAYS_LEFT = (days: number) => ({
  'gateway_certificate_expires_timestamp_seconds{instance="a"}': `${days * 86_400}x100`,
});
const refusedKeys = (plan: string, asking: number, refused: number): History => ({
  [`gateway_keys_asking{plan="${plan}",instance="a"}`]: `${asking}x30`,
  [`gateway_keys_refused{plan="${plan}",instance="a"}`]: `${refused}x30`,
});
const unknownOn = (instance: string) =>
  `gateway_decisions_total{outcome="unknown",plan="none",mode="shared",instance="${instance}"}`;
const admittedOn = (instance: string) =>
  `gateway_decisions_total{outcome="admitted",plan="pro",mode="shared",instance="${instance}"}`;
const ELSEWHERE = 'gateway_decisions_total{outcome="elsewhere",plan="none",mode="shared",instance="a"}';
const UNUSABLE = 'gateway_requests_without_decision_total{instance="a",reason="unusable"}';
const BAD_VALUES = 'gateway_key_values_rejected_total{instance="a"}';
const MEMORY = 'gateway_redis_memory_used_ratio{instance="a",node="redis"}';
const BACKUP = (instance: string) => `gateway_backup_completed_timestamp_seconds{instance="${instance}"}`;
const CONNECTIONS = (limit: string) => `gateway_connections_refused_total{instance="a",limit="${limit}"}`;
const WEBHOOKS = (result: string) => `gateway_webhook_deliveries_total{instance="a",result="${result}"}`;

/** For each alert, in the order of the rules: histories in which it fires, and in which it does not. */
const ALERT_HISTORIES: Readonly<Record<string, AlertHistories>> = {
  GatewayDown: {
    fires: [
      { 'up{job="gateway",instance="a"}': '1x10 0x20' },
      { ...UP, 'gateway_workers_serving{instance="a"}': '2x10 0x20' },
      { 'up{job="core",instance="c"}': '1x30' },
    ],
    stays: [
      { ...UP, 'gateway_workers_serving{instance="a"}': '1x30' },
      { 'up{job="gateway",instance="a"}': '1x19 0x1 1x5' },
    ],
  },
  GatewayDecisionsLocal: {
    fires: [
      {
        'gateway_redis_nodes_away{instance="a",worker="1"}': '0x30',
        'gateway_redis_nodes_away{instance="a",worker="2"}': '0x15 1x10',
      },
    ],
    stays: [
      { 'gateway_redis_nodes_away{instance="a"}': '0x30' },
      { 'gateway_redis_nodes_away{instance="a"}': '0x17 1 0x10' },
    ],
  },
  GatewayErrorRatioHigh: {
    fires: [{ [requests('200')]: '0+97x30', [requests('502')]: '0+1x30', [requests('503')]: '0+2.5x30' }],
    stays: [
      { [requests('200')]: '0+98.5x30', [requests('502')]: '0+1.5x30' },
      { [requests('200')]: '0+1000x30', [requests('429')]: '0+1000x30' },
      // One failed request among few is not an outage.
      { [requests('200')]: '0+2x30', [requests('502')]: '0+1x30' },
    ],
  },
  GatewayAddedLatencyHigh: {
    fires: [
      { [decidedWithin('0.05')]: '0+98x30', [decidedWithin('0.1')]: '0+100x30', [decidedWithin('+Inf')]: '0+100x30' },
    ],
    stays: [
      { [decidedWithin('0.05')]: '0+99.5x30', [decidedWithin('0.1')]: '0+100x30', [decidedWithin('+Inf')]: '0+100x30' },
    ],
  },
  GatewayEventLoopBlocked: {
    fires: [{ [LAG]: '0.01x10 0.6x20' }],
    stays: [
      { [LAG]: '0.45x30' },
      { [LAG]: '0.01x18 2 0.01x10' },
      { 'nodejs_eventloop_lag_max_seconds{job="core",instance="c"}': '2x30' },
    ],
  },
  GatewayShedding: {
    fires: [
      { [SHED]: '0x15 0+5x15', [FULL]: '0x30' },
      { [SHED]: '0x30', [FULL]: '0x15 0+5x15' },
    ],
    stays: [{ [SHED]: '100x30', [FULL]: '3x30' }],
  },
  GatewayPlanValueRejected: {
    fires: [
      {
        'gateway_plans_rejected_values{instance="a"}': '0x10 2x20',
        'gateway_plans_rejected_values{instance="b"}': '0x30',
      },
    ],
    stays: [{ 'gateway_plans_rejected_values{instance="a"}': '0x30' }],
  },
  GatewayRefusalsSpike: {
    fires: [
      {
        [decisions('admitted', 'free')]: '0+60x30',
        [decisions('refused_minute', 'free')]: '0+40x30',
        [decisions('admitted', 'pro')]: '0+60x30',
        [decisions('refused_day', 'pro')]: '0+40x30',
      },
    ],
    stays: [
      {
        [decisions('admitted', 'free')]: '0+10x30',
        [decisions('refused_minute', 'free')]: '0+9000x30',
        [decisions('admitted', 'pro')]: '0+80x30',
        [decisions('refused_minute', 'pro')]: '0+20x30',
      },
    ],
  },
  GatewayBansSpike: {
    fires: [{ 'gateway_bans_active{instance="a"}': '3x11 24x20' }],
    stays: [{ 'gateway_bans_active{instance="a"}': '30x30' }, { 'gateway_bans_active{instance="a"}': '3x11 23x20' }],
  },
  GatewayWorkerCrashes: {
    fires: [{ 'gateway_worker_crashes_total{instance="a"}': '0x15 1x15' }],
    stays: [{ 'gateway_worker_crashes_total{instance="a"}': '4x30' }],
  },
  GatewayPlanRefusals: {
    fires: [
      {
        ...refusedKeys('free', 20, 6),
        [decisions('admitted', 'free')]: '0+60x30',
        [decisions('refused_minute', 'free')]: '0+40x30',
        ...refusedKeys('pro', 20, 0),
        [decisions('admitted', 'pro')]: '0+60x30',
        [decisions('refused_minute', 'pro')]: '0x30',
      },
    ],
    stays: [
      // A single client that never stops.
      {
        ...refusedKeys('free', 20, 1),
        [decisions('admitted', 'free')]: '0+10x30',
        [decisions('refused_minute', 'free')]: '0+9000x30',
      },
      // Few of many keys are refused.
      {
        ...refusedKeys('free', 1_000, 20),
        [decisions('admitted', 'free')]: '0+60x30',
        [decisions('refused_minute', 'free')]: '0+40x30',
      },
      // The refusals are over, although the keys still count as refused.
      {
        ...refusedKeys('free', 20, 20),
        [decisions('admitted', 'free')]: '0+60x30',
        [decisions('refused_minute', 'free')]: '0+40x5 200x25',
      },
    ],
  },
  GatewayUnknownKeys: {
    fires: [{ [unknownOn('a')]: '0x10 0+60x20', [admittedOn('a')]: '0+60x10 600x20' }],
    stays: [
      { [unknownOn('a')]: '0+40x30', [admittedOn('a')]: '0+60x30' },
      // One unknown key per minute, and hardly any other request.
      { [unknownOn('a')]: '0+1x30', [admittedOn('a')]: '0x30' },
    ],
  },
  GatewaySecretElsewhere: {
    fires: [{ [ELSEWHERE]: '0x15 1x15' }],
    stays: [{ [ELSEWHERE]: '7x30' }, { [ELSEWHERE]: '0x2 7x28' }],
  },
  GatewayKeyDataBad: {
    fires: [
      { [UNUSABLE]: '0x5 0+1x25', [BAD_VALUES]: '0x30' },
      { [UNUSABLE]: '0x30', [BAD_VALUES]: '0x5 0+1x25' },
    ],
    stays: [{ [UNUSABLE]: '5x30', [BAD_VALUES]: '5x30' }],
  },
  GatewayPlansUnreadable: {
    fires: [{ 'gateway_plans_readable{instance="a"}': '1x10 0x20', 'gateway_redis_nodes_away{instance="a"}': '0x30' }],
    stays: [
      { 'gateway_plans_readable{instance="a"}': '1x30', 'gateway_redis_nodes_away{instance="a"}': '0x30' },
      { 'gateway_plans_readable{instance="a"}': '0x30', 'gateway_redis_nodes_away{instance="a"}': '1x30' },
    ],
  },
  GatewayRedisMemoryHigh: {
    fires: [{ [MEMORY]: '0.5x10 0.81x20' }],
    stays: [{ [MEMORY]: '0.79x30' }, { [MEMORY]: '0.5x17 0.9x1 0.5x10' }],
  },
  GatewayBackupMissing: {
    // The clock of these histories starts at 0, and 26 hours are 1,560 minutes. The newest backup on any gateway counts.
    fires: [{ [BACKUP('a')]: '0x1700' }, { [BACKUP('a')]: '0x1700', [BACKUP('b')]: '-3600x1700' }],
    stays: [{ [BACKUP('a')]: '0x1000 60000x700' }, { [BACKUP('a')]: '0x1700', [BACKUP('b')]: '60000x1700' }, {}],
  },
  GatewayConnectionsFull: {
    fires: [{ [CONNECTIONS('total')]: '0x10 0+5x20', [CONNECTIONS('address')]: '0x30' }],
    stays: [{ [CONNECTIONS('total')]: '9x30', [CONNECTIONS('address')]: '0+50x30' }],
  },
  GatewayDescriptorsExhausted: {
    fires: [{ 'gateway_descriptors_exhausted_total{instance="a"}': '0x17 3x13' }],
    stays: [{ 'gateway_descriptors_exhausted_total{instance="a"}': '3x30' }],
  },
  GatewayCertificateExpires: {
    fires: [DAYS_LEFT(13)],
    stays: [DAYS_LEFT(15), {}],
  },
  GatewayCertificateRejected: {
    fires: [{ 'gateway_certificate_rejected{instance="a"}': '0x10 1x20' }],
    stays: [{ 'gateway_certificate_rejected{instance="a"}': '0x30' }],
  },
  GatewayCoreNameLost: {
    fires: [{ 'gateway_upstream_names_lost{instance="a"}': '0x10 1x20' }],
    stays: [
      { 'gateway_upstream_names_lost{instance="a"}': '0x30' },
      { 'gateway_upstream_names_lost{instance="a"}': '0x18 1x0 0x10' },
    ],
  },
  GatewayWebhooksLost: {
    fires: [
      { [WEBHOOKS('given_up')]: '0x15 1x15', [WEBHOOKS('dropped')]: '0x30' },
      { [WEBHOOKS('given_up')]: '0x30', [WEBHOOKS('dropped')]: '0x15 20x15' },
    ],
    stays: [{ [WEBHOOKS('given_up')]: '4x30', [WEBHOOKS('retried')]: '0+9x30' }],
  },
  LogLinesDropped: {
    fires: [
      { 'gateway_log_lines_dropped_total{instance="a"}': '0x15 50x15' },
      { 'core_log_lines_dropped_total{instance="c"}': '0x15 50x15' },
    ],
    stays: [{ 'gateway_log_lines_dropped_total{instance="a"}': '50x30' }],
  },
  CoreDown: {
    fires: [{ ...UP, 'up{job="core",instance="c"}': '1x10 0x20' }, { 'up{job="gateway",instance="a"}': '1x30' }],
    stays: [UP],
  },
  CoreUnreachable: {
    fires: [{ [UNREACHABLE]: '0x15 0+1x15' }],
    stays: [{ [UNREACHABLE]: '7x30' }, { [UNREACHABLE.replace('unreachable', 'timeout')]: '0+5x30' }],
  },
  CoreErrors: {
    fires: [{ [coreRequests('listPets', '200')]: '0+97x30', [coreRequests('createPet', '500')]: '0+3x30' }],
    stays: [
      { [coreRequests('listPets', '200')]: '0+99x30', [coreRequests('createPet', '500')]: '0+1x30' },
      { [coreRequests('listPets', '200')]: '0+99x30', [coreRequests('readyz', '503')]: '0+99x30' },
    ],
  },
  CoreStoreFailing: {
    fires: [{ [STORE_ERRORS]: '0x15 0+1x15' }],
    stays: [{ [STORE_ERRORS]: '5x30' }],
  },
};

/** Long enough for every alert's duration and look-back window. */
const AT = '20m';
const AT_OF: Readonly<Record<string, string>> = { GatewayCertificateExpires: '80m', GatewayBackupMissing: '1660m' };

const RULES = parse(ALERTS) as { groups: { rules: { alert: string }[] }[] };
const runbook = readFileSync(join(ROOT, 'deploy/RUNBOOK.md'), 'utf8');
const alerts = ALERTS.split(/^ {6}- alert: /m).slice(1);
const nameOf = (alert: string) => alert.slice(0, alert.indexOf('\n'));

beforeAll(() => void need('prometheus'), 300_000);

function promtool(...args: string[]): { readonly status: number | null; readonly said: string } {
  const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8', cwd: PROMETHEUS_FOLDER });
  return { status, said: stdout + stderr };
}

/** A file with only this alert, because with all of them a history of a day takes half a minute. */
async function rulesOf(alertname: string): Promise<string> {
  const rules = RULES.groups.flatMap((group) => group.rules).filter(({ alert }) => alert === alertname);
  const file = join(await temporaryFolder(), 'rules.yml');
  await writeFile(file, JSON.stringify({ groups: [{ name: alertname, rules }] }));
  return file;
}

/** Whether exactly this many alerts of a name fire at the end of each history, according to promtool. */
async function judge(alertname: string, histories: readonly History[], firing: number) {
  const tests = histories.map((history) => ({
    interval: '1m',
    input_series: Object.entries(history).map(([series, values]) => ({ series, values })),
    promql_expr_test: [
      {
        expr: `count(ALERTS{alertname="${alertname}",alertstate="firing"})`,
        eval_time: AT_OF[alertname] ?? AT,
        exp_samples: firing === 0 ? [] : [{ labels: '{}', value: firing }],
      },
    ],
  }));
  const file = join(await temporaryFolder(), 'test.yml');
  // JSON is YAML.
  await writeFile(file, JSON.stringify({ rule_files: [await rulesOf(alertname)], evaluation_interval: '1m', tests }));
  return promtool('test', 'rules', file);
}

test('Prometheus accepts the configuration and its rules', () => {
  expect(promtool('check', 'config', 'prometheus.yml')).toMatchObject({ status: 0 });
  const checked = promtool('check', 'rules', '--lint=all', '--lint-fatal', 'rules/recording.yml', 'rules/alerts.yml');
  expect(checked).toEqual({ status: 0, said: expect.stringContaining(`SUCCESS: ${alerts.length} rules found`) });
});

test('this file tests every alert', () => {
  expect(Object.keys(ALERT_HISTORIES)).toEqual(ALERT_NAMES);
});

test.for(alerts.map((alert) => [nameOf(alert), alert] as const))(
  '%s has a severity, a description and a link to its runbook',
  ([name, alert]) => {
    expect(alert).toMatch(/^ +severity: (critical|warning)$/m);
    expect(alert).toMatch(/^ +summary: .{20,}$/m);
    expect(alert).toMatch(/^ +description: .{40,}$/m);
    expect(alert).toContain(`runbook_url: '{{ $externalLabels.runbook }}#${name.toLowerCase()}'\n`);
    expect(runbook).toMatch(new RegExp(`^## ${name}$`, 'm'));
  },
);

test.for(Object.entries(ALERT_HISTORIES))('%s fires when it should', async ([name, { fires }]) => {
  expect(await judge(name, fires, 1)).toMatchObject({ status: 0 });
});

test.for(Object.entries(ALERT_HISTORIES))('%s stays quiet when it should', async ([name, { stays }]) => {
  expect(await judge(name, stays, 0)).toMatchObject({ status: 0 });
});
