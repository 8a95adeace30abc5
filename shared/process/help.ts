import { z } from 'zod';
import { fileSetting, isSecret } from './env.ts';

/** A program's purpose and settings. The tables in deploy/SETTINGS.md and the output of `--help` have the same rows. */

export interface Program {
  /** One or more sentences. */
  readonly about: string;
  readonly command: string;
  readonly settings: z.core.$ZodShape;
}

/** A row of the table: a setting's name, its default or '–', and its meaning in Markdown. */
type SettingRow = readonly [name: string, defaultValue: string, meaning: string];

export const settingRows = (settings: z.core.$ZodShape): SettingRow[] =>
  Object.entries(settings).map(([name, schema]) => [
    name,
    defaultOf(schema),
    `${z.globalRegistry.get(schema)?.description}${isSecret(schema) ? `. As a file: \`${fileSetting(name)}\`` : ''}`,
  ]);

function defaultOf(schema: z.core.$ZodType): string {
  const value = schema instanceof z.ZodDefault ? schema.def.defaultValue : undefined;
  return String(value ?? '') || '–';
}

const GAP = '  ';
const WIDTHS = { least: 80, most: 100 };

/** @param columns the width of the terminal; undefined if there is none */
export function helpText({ about, command, settings }: Program, columns: number = WIDTHS.most): string {
  const width = Math.min(Math.max(columns, WIDTHS.least), WIDTHS.most);
  return `${wrapped(about, width).join('\n')}

Usage: [SETTING=value …] ${command}

${wrapped('Settings are environment variables; an empty one, except CORE_TOKEN, counts as unset.', width).join('\n')}

${settingsTable(settings, width)}
Example: PORT=9000 LOG_LEVEL=warn ${command}
`;
}

function settingsTable(settings: z.core.$ZodShape, width: number): string {
  const rows = [['setting', 'default', 'meaning'] as const, ...settingRows(settings)];
  const [names, defaults] = [0, 1].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const before = (names ?? 0) + (defaults ?? 0) + 2 * GAP.length;
  return rows
    .map(([name, defaultValue, meaning]) => {
      const [first, ...others] = wrapped(meaning.replaceAll('`', ''), width - before);
      const head = [name.padEnd(names ?? 0), defaultValue.padEnd(defaults ?? 0), first].join(GAP);
      return [head, ...others.map((line) => ' '.repeat(before) + line), ''].join('\n');
    })
    .join('');
}

/** The text in lines of at most this width. A longer word has a line of its own. */
const wrapped = (text: string, width: number): string[] =>
  [...text.matchAll(new RegExp(`(.{1,${width}}|\\S+)(?: |$)`, 'g'))].map(([, line = '']) => line);

/** Prints the help of a program, fitted to the terminal. */
export function printHelp(program: Program): void {
  process.stdout.write(helpText(program, process.stdout.columns));
}
