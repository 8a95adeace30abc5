import { readFileSync, writeFileSync } from 'node:fs';
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

/** SETTINGS.md is written from code: settings from their schemas, plan fields from their table. */

export const FILE = 'deploy/SETTINGS.md';

/** Each table by its mark in the file. */
const TABLES: Readonly<Record<string, () => string>> = {
  'settings of the gateway': () => settingsTable('gateway', GatewaySettings.shape),
  'settings of the core': () => settingsTable('core', CoreSettings.shape),
  'fields of a plan': plansTable,
};

/** The text with its tables updated, between their marks. */
export const withTables = (text: string): string =>
  Object.entries(TABLES).reduce((written, [mark, table]) => written.replace(placeOf(mark), `$1${table()}$2`), text);

const placeOf = (mark: string): RegExp => new RegExp(`(<!-- ${mark} -->\\n)[^]*?(<!-- end -->)`);

/** A value that is absent leaves its cell empty. */
const lines = (head: readonly string[], rows: readonly (readonly unknown[])[]): string =>
  [head, head.map(() => '---'), ...rows]
    .map((row) => `| ${row.map((cell) => (cell === '–' ? '' : cell)).join(' | ')} |\n`)
    .join('');

function settingsTable(service: string, settings: Program['settings']): string {
  const rows = settingRows(settings).map(([name, ...others]) => [`\`${name}\``, ...others]);
  return lines([service, 'default', ''], rows);
}

function plansTable(): string {
  const rows = FIELD_NAMES.map((field) => {
    const start = (plan: PlanName) => valueIn(DEFAULT_PLANS[plan], field) ?? '–';
    return [`\`${field}\``, PLAN_FIELDS[field].help, ...PLAN_NAMES.map(start)];
  });
  return lines(['field', '', ...PLAN_NAMES], rows);
}

if (import.meta.main) writeFileSync(FILE, withTables(readFileSync(FILE, 'utf8')));
