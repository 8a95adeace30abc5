import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Summary } from './summary.ts';
import { COLUMNS } from './table.ts';

/** The results of a run as CSV files beside this one, and as Markdown on a terminal. */

/** The first row is the header. */
export type Table = readonly (readonly string[])[];

/** Writes `<name>.csv`. Each row states how it was measured, so that it can be quoted alone. */
export function writeTable(name: string, [head = [], ...rows]: Table, measured: string): void {
  const lines = [[...head, 'measured'], ...rows.map((row) => [...row, measured])];
  writeFileSync(
    join(import.meta.dirname, `${name}.csv`),
    lines.map((row) => `${row.map(quoted).join(',')}\n`).join(''),
  );
}

const quoted = (cell: string): string => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

export const markdownOf = ([head = [], ...rows]: Table): string =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |\n`).join('');

/** Columns that matter only to those who change the benchmark. */
const LEFT_OUT: ReadonlySet<string> = new Set(['core µs', 'calls/s', 'rounds']);
const SHOWN = COLUMNS.filter(({ head }) => !LEFT_OUT.has(head));

/** Every contender of every scenario that was measured. */
export const speedTable = (summaries: readonly Summary[]): Table => [
  ['scenario', 'contender', ...SHOWN.map(({ head }) => head)],
  ...summaries.flatMap(({ title, rows }) =>
    rows
      .filter(({ rounds }) => rounds > 0)
      .map((row) => [title, row.name, ...SHOWN.map((column) => column.text(row).replaceAll(',', ''))]),
  ),
];
