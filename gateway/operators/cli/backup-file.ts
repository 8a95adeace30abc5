import type { BackedUpKey } from '../../stores/keys.ts';
import { writeCursor } from '../../stores/storage.ts';
import type { BackupAnswer } from '../api/answers.ts';

/**
 * A backup is a file of JSON lines: a header with the plan table, one line per key, and a last line with the number of
 * keys. A file without that last line is incomplete.
 */

const FORMAT = 'animal-store-backup';
const VERSION = 1;

/** Longer lines cannot be keys of ours. Shorter ones fit into one call, even if invalid bytes became longer as text. */
const MAX_LINE_BYTES = 300_000;
const LINE_FEED = 10;

export interface Header {
  /** When the backup began. */
  readonly at: string;
  readonly plans: NonNullable<BackupAnswer['plans']>;
}

export interface Line {
  readonly number: number;
  /** Empty if the line is too long. */
  readonly text: string;
  readonly isTooLong: boolean;
  /** Whether the line ends with a line feed. */
  readonly isEnded: boolean;
}

export const headerLine = ({ at, plans }: Header): string =>
  `${JSON.stringify({ format: FORMAT, version: VERSION, at, plans })}\n`;
export const keyLine = (key: BackedUpKey): string => `${JSON.stringify(key)}\n`;
export const endLine = (keys: number): string => `${JSON.stringify({ end: true, keys })}\n`;

/** Reads the header. @returns a message if it is invalid */
export function readHeader(line: Line | undefined): Header | string {
  const { format, version, at, plans } = objectIn(line?.text ?? '') ?? {};
  if (format !== FORMAT || typeof plans !== 'object' || plans === null)
    return 'This is not a backup of keys: its first line is not from `ctl backup`.';
  if (version !== VERSION) return `This is a backup of version ${version}; this program reads version ${VERSION}.`;
  return { at: String(at), plans: plans as Header['plans'] };
}

/** Reads a line after the header; undefined if it is neither a key nor the end. */
export function readLine({ text }: Line): { key: BackedUpKey } | { end: number } | undefined {
  const value = objectIn(text);
  if (value?.end === true) return { end: Number(value.keys) };
  return isKey(value) ? { key: value } : undefined;
}

const isKey = (value: unknown): value is BackedUpKey => {
  const { id, createdAt, fields } = (value ?? {}) as Partial<BackedUpKey>;
  return (
    typeof id === 'string' &&
    typeof createdAt === 'number' &&
    typeof fields === 'object' &&
    fields !== null &&
    Object.values(fields).every((text) => typeof text === 'string')
  );
};

/** The cursor after this key, where a backup continues. */
export const cursorOf = (key: BackedUpKey): string => writeCursor(key);

function objectIn(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** Splits a stream into lines. Only one is in memory at a time, whatever their length. */
export async function* linesOf(stream: AsyncIterable<Buffer>): AsyncGenerator<Line> {
  let number = 0;
  let parts: Buffer[] = [];
  let length = 0;
  const take = (part: Buffer) => {
    length += part.length;
    if (length <= MAX_LINE_BYTES) parts.push(part);
    else parts = [];
  };
  const line = (isEnded: boolean): Line => {
    const isTooLong = length > MAX_LINE_BYTES;
    const made = { number: ++number, text: Buffer.concat(parts).toString(), isTooLong, isEnded };
    parts = [];
    length = 0;
    return made;
  };
  for await (const chunk of stream) {
    let from = 0;
    for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, from)) {
      take(chunk.subarray(from, at));
      yield line(true);
      from = at + 1;
    }
    take(chunk.subarray(from));
  }
  if (length > 0) yield line(false);
}
