import { styleText } from 'node:util';
import Table from 'cli-table3';
import { withTimes } from '../clients.ts';

/** Formats what commands print: tables, facts, colours and times. */

export type Cell = string | number | undefined;

/** Columns separated by two spaces, without borders. */
const PLAIN = Object.fromEntries(
  ['top', 'bottom', 'left', 'mid', 'right', 'middle'].flatMap((side) =>
    ['', '-mid', '-left', '-right'].map((part) => [`${side}${part}`, '']),
  ),
);

/** A column of a table: a member that is its own title, or a title and what to show. */
export type Column<T> = (keyof T & string) | readonly [title: string, cell: (row: T) => Cell];

/**
 * Formats values as rows of aligned columns with a header; numbers are right-aligned. Control characters could
 * manipulate the terminal, and may be in data edited by hand, so each is replaced with U+FFFD.
 * @param columns a column whose title begins with `?` is left out if it is empty
 * @param paint colours a cell; the width counts visible characters only
 */
export function table<T>(
  values: readonly T[],
  columns: readonly Column<T>[],
  paint: (text: string, column: string) => string = (text) => text,
): string {
  const shown = columns
    .map((column) => (typeof column === 'string' ? ([column, (row: T) => row[column] as Cell] as const) : column))
    .filter(([title, cell]) => !title.startsWith('?') || values.some((row) => cell(row) !== undefined));
  const head = shown.map(([title]) => title.replace(/^\?/, ''));
  const rows = values.map((row) => shown.map(([, cell]) => cell(row)));
  const isNumeric = (column: number) => rows.every((row) => typeof row[column] !== 'string');
  const made = new Table({
    chars: { ...PLAIN, middle: '  ' },
    style: { 'padding-left': 0, 'padding-right': 0, head: [], border: [], compact: true },
    colAligns: head.map((_, column) => (isNumeric(column) ? 'right' : 'left')),
  });
  made.push([...head]);
  for (const row of rows) made.push(row.map((cell, at) => paint(harmless(String(cell ?? '-')), head[at] ?? '')));
  return made.toString().replaceAll(/ +$/gm, '');
}

export type Facts = readonly (readonly [name: string, fact: string | undefined])[];

/** One line per fact; unknown facts are left out. @param paint as in `table` */
export const linesOf = (facts: Facts, paint: (text: string, name: string) => string = (text) => text): string =>
  facts
    .flatMap(([name, fact]) => (fact === undefined ? [] : `${name.padEnd(18)}${paint(harmless(fact), name)}`))
    .join('\n');

export const harmless = (text: string): string => text.replaceAll(/\p{Cc}/gu, '\u{fffd}');

export type Style = Parameters<typeof styleText>[0];

/** Colours text if the stream is a terminal and NO_COLOR is not set; styleText checks both. */
export const colour = (style: Style, text: string, stream: NodeJS.WriteStream = process.stdout): string =>
  styleText(style, text, { stream });

const MINUTE_MS = 60_000;

const timeFormat =
  ({ length }: string) =>
  (time: string, output: { isTTY?: boolean } = process.stdout): string => {
    const at = new Date(time);
    if (!output.isTTY || Number.isNaN(at.getTime())) return time;
    const minutes = -at.getTimezoneOffset();
    const clock = new Date(at.getTime() + minutes * MINUTE_MS).toISOString().slice(0, length).replace('T', ' ');
    return `${clock} ${minutes < 0 ? '-' : '+'}${new Date(Math.abs(minutes) * MINUTE_MS).toISOString().slice(11, 16)}`;
  };

/**
 * Formats a time for its reader: on a terminal to the second, in the local time zone with its offset; in a pipe
 * unchanged (RFC 3339, UTC). Every command accepts both forms.
 */
export const timeText = timeFormat('2030-12-31T00:00:00');

/** Like `timeText`, but to the millisecond, for events that occur many times a second. */
export const preciseTimeText = timeFormat('2030-12-31T00:00:00.000');

/** Formats the times in a sentence, as `timeText` does. */
export const withTimeTexts = (sentence: string): string => withTimes(sentence, (time) => timeText(time)).join('');

/** The column for the last use of a key or a secret. */
export const LAST_USED: Column<{ readonly lastUsedAt?: string | undefined }> = [
  'last used',
  ({ lastUsedAt }) => (lastUsedAt === undefined ? 'never' : timeText(lastUsedAt)),
];
