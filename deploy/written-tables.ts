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
import { commandList } from '../gateway/operators/cli/commands.ts';
import { type Program, settingRows } from '../shared/process/help.ts';

/** READMEs contain tables written from code: settings from their schemas, plan fields and commands from their tables. */

/** Each table by its mark in the README, with its file. */
const TABLES: Readonly<Record<string, { readonly file: string; table(): string }>> = {
  'settings of the gateway': { file: 'README.md', table: () => settingsTable('gateway', GatewaySettings.shape) },
  'settings of the core': { file: 'README.md', table: () => settingsTable('core', CoreSettings.shape) },
  'fields of a plan': { file: 'gateway/README.md', table: plansTable },
  'commands of ctl': { file: 'gateway/operators/cli/README.md', table: commandsTable },
};

export const FILES: readonly string[] = [...new Set(Object.values(TABLES).map(({ file }) => file))];

/** The text of a file with its tables updated, between their marks. */
export const withTables = (file: string, text: string): string =>
  Object.entries(TABLES)
    .filter(([, table]) => table.file === file)
    .reduce((written, [mark, { table }]) => written.replace(placeOf(mark), `$1${table()}$2`), text);

const placeOf = (mark: string): RegExp => new RegExp(`(<!-- ${mark} -->\\n)[^]*?(<!-- end -->)`);

const lines = (head: readonly string[], rows: readonly (readonly unknown[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |\n`).join('');

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

function commandsTable(): string {
  const rows = commandList().map(({ usage, description }) => [`\`${usage.replaceAll('|', '\\|')}\``, description]);
  return lines(['command', ''], rows);
}

if (import.meta.main) for (const file of FILES) writeFileSync(file, withTables(file, readFileSync(file, 'utf8')));
