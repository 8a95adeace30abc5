import { type Command, Option } from 'commander';
import { harmless } from '../table.ts';
import type { UsedOnDay } from '../usage.ts';
import type { Session } from './session.ts';

interface UsagePage {
  readonly keptFrom: string;
  readonly usage: readonly UsedOnDay[];
  readonly next?: string;
}

type Range = { readonly from?: string; readonly to?: string };

const COLUMNS = ['day', 'id', 'plan', 'admitted', 'refused', 'name'] as const;
/** Wide enough for what the columns hold; the last one is as wide as it is. */
const WIDTHS: readonly number[] = [10, 12, 10, 12, 12, 0];

/** Adds `usage`: what keys have used, by day, for bills and reports. Pages are written as they come. */
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
    const page = (await session.call('GET', `/usage?${query}`)) as UsagePage;
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

/** Numbers to the right. */
function line(cells: readonly (string | number)[]): string {
  const isNumeric = (at: number) => COLUMNS[at] === 'admitted' || COLUMNS[at] === 'refused';
  const padded = cells.map((cell, at) => {
    const [text, width] = [harmless(String(cell)), WIDTHS[at] ?? 0];
    return isNumeric(at) ? text.padStart(width) : text.padEnd(width);
  });
  return `${padded.join('  ')}\n`;
}

async function* asCsv(pages: Pages): AsyncGenerator<string> {
  yield `${COLUMNS.join(',')}\r\n`;
  for await (const page of pages)
    yield page.map((row) => `${COLUMNS.map((column) => field(row[column])).join(',')}\r\n`).join('');
}

/** A text that a spreadsheet would take for a formula is given an apostrophe in front, which it takes for a text. */
function field(value: string | number): string {
  const text = String(value);
  const plain = typeof value === 'string' && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

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
