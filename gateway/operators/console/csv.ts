import type { ActivityView } from '../api/answers.ts';

/** Entries of the audit log as comma-separated values (RFC 4180), the same as `ctl activity --csv` prints. */

export const COLUMNS = [
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

const END = '\r\n';

export function asCsv(entries: readonly ActivityView[]): string {
  const rows = entries.map((entry) => {
    const texts = { ...entry, changes: changesInWords(entry.changes) };
    return COLUMNS.map((column) => texts[column] ?? '');
  });
  return csvOf(COLUMNS, rows);
}

/** A head and rows of texts. */
export const csvOf = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, ...rows].map((row) => row.map(cell).join(',') + END).join('');

/** Texts that a spreadsheet reads as a formula begin with one of these, or with its full-width form. */
const FORMULA = /^[=+\-@\t\r＝＋－＠]/;
const QUOTED = /[",\r\n]/;

function cell(text: string): string {
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return QUOTED.test(text) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Also for a line of text. */
export const changesInWords = (changes: ActivityView['changes']): string =>
  changes
    .map(({ field, from, to }) => {
      if (from === undefined) return `${field} ${to ?? ''}`;
      return `${field} ${from} -> ${to ?? 'none'}`;
    })
    .join('; ');
