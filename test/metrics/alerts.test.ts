import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { ALERT_NAMES, ALERTS } from '../support/alerts.ts';
import { ROOT } from '../support/process.ts';
import { needPrometheus, PROMETHEUS_FOLDER } from '../support/prometheus.ts';
import { temporaryFolder } from '../support/stack.ts';

/** Series and their values, a minute apart, as promtool writes them: `0+60x30` begins with 0 and grows by 60 thirty times. */
type History = Readonly<Record<string, string>>;

interface Case {
  readonly fires: readonly History[];
  /** Near misses, and what passes by itself. */
  readonly stays: readonly History[];
}

const UP = { 'up{job="gateway",instance="a"}': '1x30', 'up{job="core",instance="c"}': '1x30' };
const requests = (status: string) => `gateway_requests_total{operation="listPets",status="${status}",plan="pro"}`;
const decisions = (outcome: string, plan: string) => `gateway_decisions_total{outcome="${outcome}",plan="${plan}"}`;
const coreRequests = (operation: string, status: string) =>
  `core_requests_total{operation="${operation}",status="${status}",instance="c"}`;
const decidedWithin = (le: string) => `gateway_decision_duration_seconds_bucket{instance="a",le="${le}"}`;
const FULL = 'gateway_upstream_errors_total{instance="a",core="http://c",kind="full"}';
const SHED = 'gateway_requests_without_decision_total{instance="a",reason="shed"}';
const UNREACHABLE = 'gateway_upstream_errors_total{instance="a",core="http://c",kind="unreachable"}';
const LAG = 'nodejs_eventloop_lag_max_seconds{job="gateway",instance="a"}';
const STORE_ERRORS = 'core_store_errors_total{instance="c",kind="unavailable"}';

/** So long that every alert has had its time, and what it looks back at. */
const AT = '20m';

const CASES: Readonly<Record<string, Case>> = {
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
      // One failed request of few is nobody's outage.
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

const runbook = readFileSync(join(ROOT, 'deploy/RUNBOOK.md'), 'utf8');
const alerts = ALERTS.split(/^ {6}- alert: /m).slice(1);
const nameOf = (alert: string) => alert.slice(0, alert.indexOf('\n'));

beforeAll(needPrometheus, 300_000);

function promtool(...args: string[]): { readonly status: number | null; readonly said: string } {
  const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8', cwd: PROMETHEUS_FOLDER });
  return { status, said: stdout + stderr };
}

/** Whether exactly so many alerts of a name fire at the end of each of these histories, by promtool's own judgement. */
async function judge(alertname: string, histories: readonly History[], firing: number) {
  const tests = histories.map((history) => ({
    interval: '1m',
    input_series: Object.entries(history).map(([series, values]) => ({ series, values })),
    promql_expr_test: [
      {
        expr: `count(ALERTS{alertname="${alertname}",alertstate="firing"})`,
        eval_time: AT,
        exp_samples: firing === 0 ? [] : [{ labels: '{}', value: firing }],
      },
    ],
  }));
  const file = join(await temporaryFolder(), 'test.yml');
  // JSON is YAML.
  const rules = ['recording', 'alerts'].map((name) => join(PROMETHEUS_FOLDER, `rules/${name}.yml`));
  await writeFile(file, JSON.stringify({ rule_files: rules, evaluation_interval: '1m', tests }));
  return promtool('test', 'rules', file);
}

test('Prometheus takes the configuration and its rules', () => {
  expect(promtool('check', 'config', 'prometheus.yml')).toMatchObject({ status: 0 });
  const checked = promtool('check', 'rules', '--lint=all', '--lint-fatal', 'rules/recording.yml', 'rules/alerts.yml');
  expect(checked).toEqual({ status: 0, said: expect.stringContaining(`SUCCESS: ${alerts.length} rules found`) });
});

test('every alert is tested here', () => {
  expect(Object.keys(CASES)).toEqual(ALERT_NAMES);
});

test.for(alerts.map((alert) => [nameOf(alert), alert] as const))(
  '%s says how grave it is, what it is, and where it stands what to do',
  ([name, alert]) => {
    expect(alert).toMatch(/^ +severity: (critical|warning)$/m);
    expect(alert).toMatch(/^ +summary: .{20,}$/m);
    expect(alert).toMatch(/^ +description: .{40,}$/m);
    expect(alert).toContain(`runbook_url: deploy/RUNBOOK.md#${name.toLowerCase()}\n`);
    expect(runbook).toMatch(new RegExp(`^## ${name}$`, 'm'));
  },
);

test.for(Object.entries(CASES))('%s fires when it should', async ([name, { fires }]) => {
  expect(await judge(name, fires, 1)).toMatchObject({ status: 0 });
});

test.for(Object.entries(CASES))('%s stays quiet when it should', async ([name, { stays }]) => {
  expect(await judge(name, stays, 0)).toMatchObject({ status: 0 });
});
