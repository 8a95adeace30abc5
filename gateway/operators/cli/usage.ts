import { type Command, Option } from 'commander';
import { type Options, stringify } from 'csv-stringify/sync';
import type { UsageAnswer, UsedOnDay } from '../api/answers.ts';
import type { Session } from './session.ts';
import { harmless } from './table.ts';

type Range = { readonly from?: string; readonly to?: string };

const COLUMNS = ['day', 'id', 'plan', 'admitted', 'refused', 'name'] as const;
/** Wide enough for the values; the last column has no fixed width. */
const WIDTHS: readonly number[] = [10, 12, 10, 12, 12, 0];

/** Adds `usage`: the use of keys by day, for bills and reports. Each page is written as it arrives. */
export function addUsageCommand(program: Command, session: Session): void {
  program
    .command('usage')
    .description('export what every key has used, day by day')
    .option('--from <date>', 'first day, as 2026-11-01; as far back as is kept when left out')
    .option('--to <date>', 'last day; today when left out')
    .addOption(new Option('--csv', 'print comma-separated values with a head (RFC 4180)'))
    .addHelpText(
      'after',
      `
Counted by the decisions themselves: admitted is what went through, refused what its limits refused. Not counted: what a
running ban turns away, what was decided while Redis was away, and requests without a good key. Days are UTC; 35 days and
the one that runs are kept, of a key that was revoked too. Name and plan are those of now. Days without a request have no
line, and the keys come oldest first.

Examples:
  ctl usage --from 2026-11-01 --to 2026-11-20
  ctl usage --from 2026-11-01 --csv > november.csv
  ctl usage --json | jq '.usage[] | select(.refused > 0)'`,
    )
    .action(async ({ csv, ...range }: Range & { csv?: boolean }) => {
      const write = session.isJson ? asJson : csv ? asCsv : asTable;
      for await (const text of write(pagesOf(session, range))) session.write(text);
    });
}

async function* pagesOf(session: Session, range: Range): AsyncGenerator<readonly UsedOnDay[]> {
  let after: string | undefined;
  let isFirst = true;
  do {
    const query = new URLSearchParams({ ...range, ...(after !== undefined && { after }) });
    const page = (await session.call('GET', `/usage?${query}`)) as UsageAnswer;
    if (isFirst && range.from !== undefined && range.from < page.keptFrom)
      session.tell(`Note: what was used before ${page.keptFrom} is not kept.`);
    isFirst = false;
    yield page.usage;
    after = page.next;
  } while (after !== undefined);
}

type Pages = AsyncGenerator<readonly UsedOnDay[]>;

async function* asTable(pages: Pages): AsyncGenerator<string> {
  yield line(COLUMNS);
  for await (const page of pages) yield page.map((row) => line(COLUMNS.map((column) => row[column]))).join('');
}

/** Right-aligns numbers. */
function line(cells: readonly (string | number)[]): string {
  const isNumeric = (at: number) => COLUMNS[at] === 'admitted' || COLUMNS[at] === 'refused';
  const padded = cells.map((cell, at) => {
    const [text, width] = [harmless(String(cell)), WIDTHS[at] ?? 0];
    return isNumeric(at) ? text.padStart(width) : text.padEnd(width);
  });
  return `${padded.join('  ')}\n`;
}

async function* asCsv(pages: Pages): AsyncGenerator<string> {
  yield stringify([[...COLUMNS]], CSV);
  for await (const page of pages) yield stringify([...page], { ...CSV, columns: [...COLUMNS] });
}

/** Adds an apostrophe before a text that a spreadsheet would read as a formula. */
const CSV: Options = { escape_formulas: true, record_delimiter: 'windows' };

async function* asJson(pages: Pages): AsyncGenerator<string> {
  yield '{ "usage": [';
  let separator = '\n';
  for await (const page of pages) {
    for (const row of page) {
      yield `${separator}  ${JSON.stringify(row)}`;
      separator = ',\n';
    }
  }
  yield '\n] }\n';
}
