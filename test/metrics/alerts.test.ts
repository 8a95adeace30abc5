import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import { ALERT_HISTORIES, type History } from '../support/alert-histories.ts';
import { ALERT_NAMES, ALERTS } from '../support/alerts.ts';
import { need } from '../support/install.ts';
import { ROOT } from '../support/process.ts';
import { PROMETHEUS_FOLDER } from '../support/prometheus.ts';
import { temporaryFolder } from '../support/stack.ts';

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

/** A file with the alert alone: a history of a day takes half a minute with all of them. */
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

test('every alert is tested', () => {
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
