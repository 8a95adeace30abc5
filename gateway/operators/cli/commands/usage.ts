import { InvalidArgumentError } from 'commander';
import { TAG_NAME, writeTags } from '../../../limiter/tags.ts';
import type { UsageAnswer, UsedOnDay } from '../../api/answers.ts';
import { readUsage } from '../../clients.ts';
import { csvOf, usageCells } from '../../console/csv.ts';
import type { Command } from '../command.ts';
import { banNote } from '../key.ts';
import type { Session } from '../session.ts';
import { type Column, harmless, table } from '../text.ts';
import { TAG_FILTER, wantedTag } from '../values.ts';

/** The options, under their names in the query. */
type Asked = { readonly from?: string; readonly to?: string; readonly tag?: string; readonly by?: string };

const COLUMNS = ['day', 'id', 'plan', 'admitted', 'refused', 'name'] as const;
/** Wide enough for any value except long names. The note after the columns has no fixed width. */
const WIDTHS: readonly number[] = [10, 12, 10, 12, 12, 24];

/** Adds `usage`, which exports the usage of keys by day, for bills and reports. Each page is written as it arrives. */
export function add(program: Command, session: Session): void {
  program
    .sub('usage', 'export the usage of every key, by day')
    .option('--from <date>', 'first day, such as 2026-11-01; default: the oldest day that is kept')
    .option('--to <date>', 'last day; default: today')
    .option(...TAG_FILTER, wantedTag)
    .option('--by <key or tag>', 'sum the days: `key` by key, `tag:<name>` by the value of the tag', sumOf)
    .option('--csv', 'print comma-separated values with a header (RFC 4180)')
    .notes(`
Usage consists of admitted requests and requests refused by limits. It does not include requests refused by an active
ban or without a valid key. Requests decided while Redis was unavailable are added later. Days are UTC; today and the 35
days before are kept, even for revoked keys. Names and plans are the current ones. Days without a request have no line.
The oldest keys come first or, with --by, the largest sums. With --by tag:<name>, keys without that tag have a sum of
their own.

Examples:
  ctl usage --from 2026-11-01 --to 2026-11-20
  ctl usage --from 2026-11-01 --csv > november.csv
  ctl usage --from 2026-11-01 --by tag:customer    what each customer has used
  ctl usage --tag customer=acme --by key           what each of the customer's keys has used
  ctl usage --json | jq '.usage[] | select(.refused > 0)'`)
    .action(async ({ csv, ...range }: Asked & { csv?: boolean }) => {
      const { by } = range;
      if (by !== undefined) return await showSums(session, { ...range, by }, csv === true);
      await writeDays(session, range, session.isJson ? JSON_TEXT : csv ? CSV : TABLE);
    });
}

/** @throws {InvalidArgumentError} for anything else */
function sumOf(text: string): string {
  if (text === 'key' || TAG_NAME.test(/^tag:(.*)$/s.exec(text)?.[1] ?? '')) return text;
  throw new InvalidArgumentError('It must be key or tag:<name>, such as tag:customer.');
}

async function showSums(session: Session, asked: Asked & { readonly by: string }, isCsv: boolean): Promise<void> {
  const { keptFrom, rows } = await readUsage(session.get, { ...asked });
  noteKept(session, asked, keptFrom);
  const [head = [], ...cells] = usageCells(rows, asked.by);
  if (isCsv && !session.isJson) return session.write(csvOf([head, ...cells]));
  const noted = rows.map((row, at) => [...(cells[at] ?? []), 'ban' in row ? banNote(row.ban) : undefined]);
  const columns = [...head, '?note'].map(
    (title, at): Column<(typeof noted)[number]> => [String(title), (row) => row[at]],
  );
  session.print({ usage: rows }, () => (rows.length === 0 ? 'No key was used.' : table(noted, columns)));
}

function noteKept(session: Session, { from }: Asked, keptFrom: string): void {
  if (from !== undefined && from < keptFrom) session.printNote(`Note: usage before ${keptFrom} is not kept.`);
}

/** How the days are written: the text before all rows, each row, and the text after them. */
interface Format {
  readonly head: string;
  row(row: UsedOnDay, isFirst: boolean): string;
  readonly end: string;
}

const valuesOf = (row: UsedOnDay) => COLUMNS.map((column) => row[column]);

const CSV: Format = {
  head: csvOf([[...COLUMNS, 'tags']]),
  row: (row) => csvOf([[...valuesOf(row), writeTags(row.tags)]]),
  end: '',
};
const JSON_TEXT: Format = {
  head: '{ "usage": [',
  row: (row, isFirst) => `${isFirst ? '\n' : ',\n'}  ${JSON.stringify(row)}`,
  end: '\n] }\n',
};
const TABLE: Format = {
  head: line([...COLUMNS, 'note']),
  row: (row) => line([...valuesOf(row), banNote(row.ban) ?? '']),
  end: '',
};

/** Writes the head only with the first page, so that standard output stays empty if the first call fails. */
async function writeDays(session: Session, range: Asked, { head, row, end }: Format): Promise<void> {
  let written: number | undefined;
  for await (const { keptFrom, usage } of session.parts<UsageAnswer>('/usage', { ...range })) {
    if (written === undefined) {
      noteKept(session, range, keptFrom);
      session.write(head);
    }
    const before = written ?? 0;
    session.write((usage as UsedOnDay[]).map((one, at) => row(one, before + at === 0)).join(''));
    written = before + usage.length;
  }
  session.write(end);
}

function line(cells: readonly (string | number)[]): string {
  const padded = cells.map((cell, at) => {
    const [text, width] = [harmless(String(cell)), WIDTHS[at] ?? 0];
    return ['admitted', 'refused'].includes(COLUMNS[at] ?? '') ? text.padStart(width) : text.padEnd(width);
  });
  return `${padded.join('  ').trimEnd()}\n`;
}
