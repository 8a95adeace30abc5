import { writeTags } from '../../limiter/tags.ts';
import type { ActivityView, UsageOfKey, UsageSum } from '../api/answers.ts';

/** Comma-separated values (RFC 4180), for the console and the command line. */

const COLUMNS = [
  'at',
  'actor',
  'action',
  'target',
  'via',
  'changes',
  'reason',
  'requestId',
  'token',
  'id',
  'targetName',
] as const;

export const asCsv = (entries: readonly ActivityView[]): string =>
  csvOf([
    COLUMNS,
    ...entries.map((entry) => {
      const texts = { ...entry, changes: changesInWords(entry.changes) };
      return COLUMNS.map((column) => texts[column]);
    }),
  ]);

type Cell = string | number | undefined;
type Cells = readonly (readonly Cell[])[];

/** Formats usage as rows, the header first. @param by what the usage is grouped by, as in the query */
export const usageCells = (rows: readonly (UsageOfKey | UsageSum)[], by: string): Cells => [
  by === 'key'
    ? ['id', 'plan', 'admitted', 'refused', 'name', 'tags']
    : [by.slice('tag:'.length), 'keys', 'admitted', 'refused'],
  ...rows.map((row) =>
    'id' in row
      ? [row.id, row.plan, row.admitted, row.refused, row.name, writeTags(row.tags)]
      : [row.value, row.keys, row.admitted, row.refused],
  ),
];

const END = '\r\n';

export const csvOf = (rows: Cells): string => rows.map((row) => row.map(cell).join(',') + END).join('');

/** A spreadsheet treats a cell as a formula if it begins with one of these characters or its full-width form. */
const FORMULA = /^[=+\-@\t\r＝＋－＠]/;
const QUOTED = /[",\r\n]/;

function cell(value: Cell): string {
  const text = String(value ?? '');
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return QUOTED.test(text) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Formats changes as one line of text. */
export const changesInWords = (changes: ActivityView['changes']): string =>
  changes
    .map(({ field, from, to }) => {
      if (from === undefined) return `${field} ${to ?? ''}`;
      return `${field} ${from} -> ${to ?? 'none'}`;
    })
    .join('; ');
