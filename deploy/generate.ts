import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';
import { CoreSettings } from '../core/config.ts';
import { GatewaySettings } from '../gateway/config.ts';
import {
  DEFAULT_PLANS,
  FIELD_NAMES,
  PLAN_FIELDS,
  PLAN_NAMES,
  type PlanName,
  valueIn,
} from '../gateway/limiter/plans.ts';
import { type Program, settingRows } from '../shared/process/help.ts';
import { describeDashboard } from './grafana/dashboard.ts';
import { ROWS } from './grafana/rows.ts';

/** `npm run generate`: writes the files that are generated from code or from other files. */

const ROOT = join(import.meta.dirname, '..');
/** The tables in this file are generated: settings from their schemas, plan fields from their table. */
export const SETTINGS_FILE = join(ROOT, 'deploy/SETTINGS.md');
/** The Prometheus rules as a PrometheusRule, for clusters with the Prometheus Operator. */
export const RULES_FILE = join(ROOT, 'deploy/kubernetes/components/prometheus-operator/rules.yaml');

if (import.meta.main) {
  writeFileSync(SETTINGS_FILE, withTables(readFileSync(SETTINGS_FILE, 'utf8')));
  writeFileSync(RULES_FILE, prometheusRule());
  writeFileSync(join(ROOT, 'deploy/grafana/dashboards/gateway.json'), dashboard());
}

/** Each panel is one line, so that a diff shows which panels changed. */
function dashboard(): string {
  const { panels, ...rest } = describeDashboard(ROWS);
  const lines = panels.map((panel) => JSON.stringify(panel)).join(',\n');
  return `${JSON.stringify(rest).replace(/}$/, '')},"panels":[\n${lines}\n]}\n`;
}

/** The content of SETTINGS.md, with the tables between its marks updated. */
export function withTables(text: string): string {
  const tables = {
    'settings of the gateway': settingsTable('gateway', GatewaySettings.shape),
    'settings of the core': settingsTable('core', CoreSettings.shape),
    'fields of a plan': plansTable(),
  };
  return Object.entries(tables).reduce(
    (written, [mark, table]) => written.replace(new RegExp(`(<!-- ${mark} -->\\n)[^]*?(<!-- end -->)`), `$1${table}$2`),
    text,
  );
}

function settingsTable(service: string, settings: Program['settings']): string {
  const rows = settingRows(settings).map(([name, ...others]) => [`\`${name}\``, ...others]);
  return tableOf([service, 'default', ''], rows);
}

function plansTable(): string {
  const rows = FIELD_NAMES.map((field) => {
    const start = (plan: PlanName) => valueIn(DEFAULT_PLANS[plan], field) ?? '–';
    return [`\`${field}\``, PLAN_FIELDS[field].help, ...PLAN_NAMES.map(start)];
  });
  return tableOf(['field', '', ...PLAN_NAMES], rows);
}

/** A value that is absent leaves its cell empty. */
function tableOf(head: readonly string[], rows: readonly (readonly unknown[])[]): string {
  return [head, head.map(() => '---'), ...rows]
    .map((row) => `| ${row.map((cell) => (cell === '–' ? '' : cell)).join(' | ')} |\n`)
    .join('');
}

/** The name of a group must be unique in its file. A PrometheusRule combines both files, so the names get a suffix. */
export function prometheusRule(): string {
  const groups = ['recording', 'alerts'].flatMap((kind) => {
    const text = readFileSync(join(ROOT, `deploy/prometheus/rules/${kind}.yml`), 'utf8');
    const { groups } = parse(text) as { groups: { name: string }[] };
    return groups.map((group) => ({ ...group, name: `${group.name}-${kind}` }));
  });
  const rule = {
    apiVersion: 'monitoring.coreos.com/v1',
    kind: 'PrometheusRule',
    metadata: { name: 'animal-store' },
    spec: { groups },
  };
  return `# Generated from deploy/prometheus/rules by \`npm run generate\`.\n${stringify(rule, { lineWidth: 0 })}`;
}
