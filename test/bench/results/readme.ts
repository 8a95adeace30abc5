import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ContenderName } from '../contenders.ts';
import type { Row, Summary } from './summary.ts';
import { COLUMNS } from './table.ts';

/** What a run writes into the README of the benchmark: tables between their marks. */

const README = join(import.meta.dirname, '../README.md');

/** Puts a text between `<!-- mark -->` and `<!-- /mark -->`. */
export function writeBetween(mark: string, text: string): void {
  const place = new RegExp(`(?<=<!-- ${mark} -->\\n)[\\s\\S]*?(?=<!-- /${mark} -->)`);
  writeFileSync(
    README,
    readFileSync(README, 'utf8').replace(place, () => `${text}\n`),
  );
}

/** What a reader of the README does not need. */
const LEFT_OUT: ReadonlySet<string> = new Set(['core µs', 'calls/s', 'rounds']);
const SHOWN = COLUMNS.filter(({ head }) => !LEFT_OUT.has(head));

const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
const headOf = (first: string): string[] => {
  const heads = [first, ...SHOWN.map(({ head }) => head)];
  return [line(heads), line(heads.map(() => '---'))];
};
const rowOf = (name: string, row: Row): string => line([name, ...SHOWN.map((column) => column.text(row))]);

/** Of the narrow scenarios, the rows of these are shown. */
const OURS: readonly ContenderName[] = ['gateway', 'gateway-2', 'gateway-embedded'];

/** Scenarios with many contenders get a table each. The others share one, with our rows alone. */
export function speedTables(summaries: readonly Summary[], about: string): string {
  const isWide = ({ rows }: Summary) => rows.length > 5 || rows.some(({ name }) => name === 'floor');
  const wide = summaries.filter(isWide).map(({ title, rows }) => {
    const lines = rows.filter(({ rounds }) => rounds > 0).map((row) => rowOf(row.name, row));
    return [`**${title}**`, '', ...headOf(''), ...lines, ''].join('\n');
  });
  const narrow = summaries
    .filter((summary) => !isWide(summary))
    .flatMap(({ title, rows }) => {
      const shown = rows.filter(({ name, rounds }) => OURS.includes(name) && rounds > 0);
      return shown.map((row) => rowOf(row.name === 'gateway' ? title : `${title}: ${row.name}`, row));
    });
  const others = narrow.length === 0 ? [] : ['**Other scenarios, this gateway**', '', ...headOf(''), ...narrow, ''];
  return [about, '', ...wide, ...others].join('\n');
}
