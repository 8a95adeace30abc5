import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
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
  /** Near misses, and faults that resolve by themselves. */
  readonly stays: readonly History[];
}

/** The series of a gateway's metric. @param labels besides the instance */
const gateway = (name: string, labels = '', instance = 'a') =>
  `gateway_${name}{instance="${instance}"${labels === '' ? '' : `,${labels}`}}`;
const core = (name: string, labels = '') => `core_${name}{instance="c"${labels === '' ? '' : `,${labels}`}}`;

const GATEWAY_UP = 'up{job="gateway",instance="a"}';
const CORE_UP = 'up{job="core",instance="c"}';
const WORKERS = gateway('workers_serving');
const coreRequests = (operation: string, status: string) =>
  core('requests_total', `operation="${operation}",status="${status}"`);
const coreErrors = (kind: string) => gateway('upstream_errors_total', `core="http://c",kind="${kind}"`);
const STORE_ERRORS = core('store_errors_total', 'kind="unavailable"');
const requests = (status: string) => `gateway_requests_total{operation="listPets",status="${status}",plan="pro"}`;
/** The counts of a plan's admitted and refused requests. */
const decisions = (plan: string, admitted: string, refused: string, by = 'minute'): History => ({
  [`gateway_decisions_total{outcome="admitted",plan="${plan}"}`]: admitted,
  [`gateway_decisions_total{outcome="refused_${by}",plan="${plan}"}`]: refused,
});
/** The counts of decisions within 50 ms and 100 ms, and of all. */
const decided = (fast: string, all: string): History => ({
  [gateway('decision_duration_seconds_bucket', 'le="0.05"')]: fast,
  [gateway('decision_duration_seconds_bucket', 'le="0.1"')]: all,
  [gateway('decision_duration_seconds_bucket', 'le="+Inf"')]: all,
});
const SHED = gateway('requests_without_decision_total', 'reason="shed"');
const lag = (job: string) => `nodejs_eventloop_lag_max_seconds{job="${job}",instance="a"}`;
const daysLeft = (days: number) => ({ [gateway('certificate_expires_timestamp_seconds')]: `${days * 86_400}x100` });
const refusedKeys = (plan: string, asking: number, refused: number): History => ({
  [gateway('keys_asking', `plan="${plan}"`)]: `${asking}x30`,
  [gateway('keys_refused', `plan="${plan}"`)]: `${refused}x30`,
});
const outcomes = (outcome: string, plan: string) =>
  gateway('decisions_total', `outcome="${outcome}",plan="${plan}",mode="shared"`);
const UNKNOWN = outcomes('unknown', 'none');
const ADMITTED = outcomes('admitted', 'pro');
const ELSEWHERE = outcomes('elsewhere', 'none');
const UNUSABLE = gateway('requests_without_decision_total', 'reason="unusable"');
const BAD_VALUES = gateway('key_values_rejected_total');
const AWAY = gateway('redis_nodes_away');
const STORED = gateway('data_stored');
const REJECTED = gateway('plans_rejected_values');
const BANS = gateway('bans_active');
const CRASHES = gateway('worker_crashes_total');
const READABLE = gateway('plans_readable');
const MEMORY = gateway('redis_memory_used_ratio', 'node="redis"');
const BACKUP = gateway('backup_completed_timestamp_seconds');
const CHANGES_LOST = gateway('changes_lost_total');
const OTHER_BACKUP = gateway('backup_completed_timestamp_seconds', '', 'b');
const CONNECTIONS = (limit: string) => gateway('connections_refused_total', `limit="${limit}"`);
const DESCRIPTORS = gateway('descriptors_exhausted_total');
const CERTIFICATE = gateway('certificate_rejected');
const NAMES_LOST = gateway('upstream_names_lost');
const WEBHOOKS = (result: string) => gateway('webhook_deliveries_total', `result="${result}"`);
const LOG_LOST = gateway('log_lines_dropped_total');

/** For each alert, in the order of the rules: histories in which it fires, and in which it does not. */
const ALERT_HISTORIES: Readonly<Record<string, AlertHistories>> = {
  GatewayDown: {
    fires: [
      { [GATEWAY_UP]: '1x10 0x20' },
      { [GATEWAY_UP]: '1x30', [CORE_UP]: '1x30', [WORKERS]: '2x10 0x20' },
      { [CORE_UP]: '1x30' },
    ],
    stays: [{ [GATEWAY_UP]: '1x30', [CORE_UP]: '1x30', [WORKERS]: '1x30' }, { [GATEWAY_UP]: '1x19 0x1 1x5' }],
  },
  GatewayDecisionsLocal: {
    fires: [
      {
        [gateway('redis_nodes_away', 'worker="1"')]: '0x30',
        [gateway('redis_nodes_away', 'worker="2"')]: '0x15 1x10',
      },
    ],
    stays: [{ [AWAY]: '0x30' }, { [AWAY]: '0x17 1 0x10' }],
  },
  GatewayDataNotStored: {
    fires: [{ [STORED]: '1x10 0x20' }],
    stays: [{ [STORED]: '1x30' }, { [STORED]: '1x19 0x1 1x5' }],
  },
  GatewayErrorRatioHigh: {
    fires: [{ [requests('200')]: '0+97x30', [requests('502')]: '0+1x30', [requests('503')]: '0+2.5x30' }],
    stays: [
      { [requests('200')]: '0+98.5x30', [requests('502')]: '0+1.5x30' },
      { [requests('200')]: '0+1000x30', [requests('429')]: '0+1000x30' },
      // One failure among a few requests is not an outage.
      { [requests('200')]: '0+2x30', [requests('502')]: '0+1x30' },
    ],
  },
  GatewayAddedLatencyHigh: {
    fires: [decided('0+98x30', '0+100x30')],
    stays: [decided('0+99.5x30', '0+100x30')],
  },
  GatewayEventLoopBlocked: {
    fires: [{ [lag('gateway')]: '0.01x10 0.6x20' }],
    stays: [{ [lag('gateway')]: '0.45x30' }, { [lag('gateway')]: '0.01x18 2 0.01x10' }, { [lag('core')]: '2x30' }],
  },
  GatewayShedding: {
    fires: [
      { [SHED]: '0x15 0+5x15', [coreErrors('full')]: '0x30' },
      { [SHED]: '0x30', [coreErrors('full')]: '0x15 0+5x15' },
    ],
    stays: [{ [SHED]: '100x30', [coreErrors('full')]: '3x30' }],
  },
  GatewayPlanValueRejected: {
    fires: [{ [REJECTED]: '0x10 2x20', [gateway('plans_rejected_values', '', 'b')]: '0x30' }],
    stays: [{ [REJECTED]: '0x30' }],
  },
  GatewayRefusalsSpike: {
    fires: [{ ...decisions('free', '0+60x30', '0+40x30'), ...decisions('pro', '0+60x30', '0+40x30', 'day') }],
    stays: [{ ...decisions('free', '0+10x30', '0+9000x30'), ...decisions('pro', '0+80x30', '0+20x30') }],
  },
  GatewayBansSpike: {
    fires: [{ [BANS]: '3x11 24x20' }],
    stays: [{ [BANS]: '30x30' }, { [BANS]: '3x11 23x20' }],
  },
  GatewayWorkerCrashes: { fires: [{ [CRASHES]: '0x15 1x15' }], stays: [{ [CRASHES]: '4x30' }] },
  GatewayPlanRefusals: {
    fires: [
      {
        ...refusedKeys('free', 20, 6),
        ...decisions('free', '0+60x30', '0+40x30'),
        ...refusedKeys('pro', 20, 0),
        ...decisions('pro', '0+60x30', '0x30'),
      },
    ],
    stays: [
      // A single client ignores its refusals.
      { ...refusedKeys('free', 20, 1), ...decisions('free', '0+10x30', '0+9000x30') },
      // Only a few of many keys are refused.
      { ...refusedKeys('free', 1_000, 20), ...decisions('free', '0+60x30', '0+40x30') },
      // The refusals are over, although the keys still count as refused.
      { ...refusedKeys('free', 20, 20), ...decisions('free', '0+60x30', '0+40x5 200x25') },
    ],
  },
  GatewayUnknownKeys: {
    fires: [{ [UNKNOWN]: '0x10 0+60x20', [ADMITTED]: '0+60x10 600x20' }],
    stays: [
      { [UNKNOWN]: '0+40x30', [ADMITTED]: '0+60x30' },
      // One unknown key per minute, and hardly any other request.
      { [UNKNOWN]: '0+1x30', [ADMITTED]: '0x30' },
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
    fires: [{ [READABLE]: '1x10 0x20', [AWAY]: '0x30' }],
    stays: [
      { [READABLE]: '1x30', [AWAY]: '0x30' },
      { [READABLE]: '0x30', [AWAY]: '1x30' },
    ],
  },
  GatewayRedisMemoryHigh: {
    fires: [{ [MEMORY]: '0.5x10 0.81x20' }],
    stays: [{ [MEMORY]: '0.79x30' }, { [MEMORY]: '0.5x17 0.9x1 0.5x10' }],
  },
  GatewayChangesLost: {
    fires: [{ [CHANGES_LOST]: '0x10 1x20' }],
    stays: [{ [CHANGES_LOST]: '1x30' }],
  },
  GatewayBackupMissing: {
    // The values are the Unix times of backups, one a minute from time 0, so 26 hours are 1,560 values. The newest
    // backup of any gateway counts.
    fires: [{ [BACKUP]: '0x1700' }, { [BACKUP]: '0x1700', [OTHER_BACKUP]: '-3600x1700' }],
    stays: [{ [BACKUP]: '0x1000 60000x700' }, { [BACKUP]: '0x1700', [OTHER_BACKUP]: '60000x1700' }, {}],
  },
  GatewayConnectionsFull: {
    fires: [{ [CONNECTIONS('total')]: '0x10 0+5x20', [CONNECTIONS('address')]: '0x30' }],
    stays: [{ [CONNECTIONS('total')]: '9x30', [CONNECTIONS('address')]: '0+50x30' }],
  },
  GatewayDescriptorsExhausted: { fires: [{ [DESCRIPTORS]: '0x17 3x13' }], stays: [{ [DESCRIPTORS]: '3x30' }] },
  GatewayCertificateExpires: { fires: [daysLeft(13)], stays: [daysLeft(15), {}] },
  GatewayCertificateRejected: { fires: [{ [CERTIFICATE]: '0x10 1x20' }], stays: [{ [CERTIFICATE]: '0x30' }] },
  GatewayCoreNameLost: {
    fires: [{ [NAMES_LOST]: '0x10 1x20' }],
    stays: [{ [NAMES_LOST]: '0x30' }, { [NAMES_LOST]: '0x18 1x0 0x10' }],
  },
  GatewayWebhooksLost: {
    fires: [
      { [WEBHOOKS('given_up')]: '0x15 1x15', [WEBHOOKS('dropped')]: '0x30' },
      { [WEBHOOKS('given_up')]: '0x30', [WEBHOOKS('dropped')]: '0x15 20x15' },
    ],
    stays: [{ [WEBHOOKS('given_up')]: '4x30', [WEBHOOKS('retried')]: '0+9x30' }],
  },
  LogLinesDropped: {
    fires: [{ [LOG_LOST]: '0x15 50x15' }, { [core('log_lines_dropped_total')]: '0x15 50x15' }],
    stays: [{ [LOG_LOST]: '50x30' }],
  },
  CoreDown: {
    fires: [{ [GATEWAY_UP]: '1x30', [CORE_UP]: '1x10 0x20' }, { [GATEWAY_UP]: '1x30' }],
    stays: [{ [GATEWAY_UP]: '1x30', [CORE_UP]: '1x30' }],
  },
  CoreUnreachable: {
    fires: [{ [coreErrors('unreachable')]: '0x15 0+1x15' }],
    stays: [{ [coreErrors('unreachable')]: '7x30' }, { [coreErrors('timeout')]: '0+5x30' }],
  },
  CoreErrors: {
    fires: [{ [coreRequests('listPets', '200')]: '0+97x30', [coreRequests('createPet', '500')]: '0+3x30' }],
    stays: [
      { [coreRequests('listPets', '200')]: '0+99x30', [coreRequests('createPet', '500')]: '0+1x30' },
      { [coreRequests('listPets', '200')]: '0+99x30', [coreRequests('readyz', '503')]: '0+99x30' },
    ],
  },
  CoreStoreFailing: { fires: [{ [STORE_ERRORS]: '0x15 0+1x15' }], stays: [{ [STORE_ERRORS]: '5x30' }] },
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

/** Writes a file with only this alert. With all of them, a history of a day takes half a minute. */
async function rulesOf(alertname: string, folder: string): Promise<string> {
  const rules = RULES.groups.flatMap((group) => group.rules).filter(({ alert }) => alert === alertname);
  const file = join(folder, `${alertname}.rules.yml`);
  await writeFile(file, JSON.stringify({ groups: [{ name: alertname, rules }] }));
  return file;
}

/** Writes a test for promtool: whether an alert fires in each history, at AT or its AT_OF. @returns its path */
async function testOf(alertname: string, { fires, stays }: AlertHistories, folder: string): Promise<string> {
  const tests = [...fires, ...stays].map((history) => ({
    interval: '1m',
    input_series: Object.entries(history).map(([series, values]) => ({ series, values })),
    promql_expr_test: [
      {
        expr: `count(ALERTS{alertname="${alertname}",alertstate="firing"})`,
        eval_time: AT_OF[alertname] ?? AT,
        exp_samples: fires.includes(history) ? [{ labels: '{}', value: 1 }] : [],
      },
    ],
  }));
  const file = join(folder, alertname);
  const rules = await rulesOf(alertname, folder);
  // JSON is also valid YAML.
  await writeFile(file, JSON.stringify({ rule_files: [rules], evaluation_interval: '1m', tests }));
  return file;
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
  '%s has a severity, a description and a link to its page in the runbook',
  ([name, alert]) => {
    expect(alert).toMatch(/^ +severity: (critical|warning)$/m);
    expect(alert).toMatch(/^ +summary: .{20,}$/m);
    expect(alert).toMatch(/^ +description: .{40,}$/m);
    expect(alert).toContain(`runbook_url: '{{ $externalLabels.runbook }}#${name.toLowerCase()}'\n`);
    expect(runbook).toMatch(new RegExp(`^## ${name}$`, 'm'));
  },
);

describe('histories', async () => {
  const folder = await temporaryFolder();
  /** What promtool reports about each alert. One process tests all of them. */
  const reports = new Map<string, string>();

  beforeAll(async () => {
    const files: string[] = [];
    for (const [name, histories] of Object.entries(ALERT_HISTORIES)) files.push(await testOf(name, histories, folder));
    for (const report of promtool('test', 'rules', ...files)
      .said.split(/^Unit Testing: +/m)
      .slice(1)) {
      const [file = '', ...lines] = report.trim().split('\n');
      reports.set(basename(file), lines.join('\n').trim());
    }
  });

  test.for(Object.keys(ALERT_HISTORIES))('%s fires when it should, and only then', (name) => {
    expect(reports.get(name)).toBe('SUCCESS');
  });
});
