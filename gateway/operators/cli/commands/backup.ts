import { createReadStream } from 'node:fs';
import { z } from 'zod';
import type { BackedUpKey } from '../../../stores/keys.ts';
import { writeCursor } from '../../../stores/storage.ts';
import type { ActivityAnswer, BackupAnswer } from '../../api/answers.ts';
import { firstFilled } from '../../clients.ts';
import { AdminError } from '../admin-client.ts';
import type { Command } from '../command.ts';
import { EXIT, type Session } from '../session.ts';
import { harmless } from '../text.ts';

/** Adds `backup`. Each page is written as it arrives. */
export function add(program: Command, session: Session): void {
  const backup = program
    .sub('backup', 'write all keys and the plan table to standard output, for `restore`')
    .option(
      '--resume <file>',
      'a backup that was cut off: copy its contents, and continue after its last complete line',
    )
    .notes(`
Keys are written with their digests, limits, bans and usage, oldest first, while clients are served. A backup contains
no secrets and therefore no usable key, but it names customers: keep it private. It does not contain revoked keys,
operators' tokens or the audit log. Each key is written as it was when it was read; keys issued during the backup come
last.

The last line has the number of keys: a file without that line was cut off. --resume reads one file and writes another;
the two must not be the same. The gateway records the time of a complete backup, for the alert GatewayBackupMissing;
this requires the operator role. With --json, the number of keys is also written to standard error.

A key that no restore would accept, for example because it was edited by hand, is left out and listed on standard error
with the reason. The command then exits with 1, and the gateway does not record the backup.

Examples:
  (umask 077 && ctl backup > keys.jsonl)
  ctl backup --resume keys.jsonl > whole.jsonl
  ctl restore < whole.jsonl`)
    .action(async ({ resume }: { resume?: string }) => {
      session.mustBeRead = true;
      const cutOff = (fault: Error): never => {
        if (session.hasWritten && !(fault instanceof AdminError && fault.status === 409))
          session.printNote('The backup was cut off. To continue: ctl backup --resume <this file> > <another file>');
        throw fault;
      };
      const refuse = (message: string) => backup.error(`error: ${message}`);
      const begun = resume === undefined ? undefined : await copy(session, resume, refuse);
      const { keys, leftOut } = begun?.isWhole ? { ...begun, leftOut: 0 } : await goOn(session, begun).catch(cutOff);
      await session.writeEnd(`${JSON.stringify({ end: true, keys })}\n`);
      if (session.isJson) session.printNote(JSON.stringify({ keys, leftOut }));
      if (leftOut > 0) {
        session.printNote(`Keys left out of this backup: ${leftOut}. Fix them, or issue new ones.`);
        process.exitCode = EXIT.fault;
        return;
      }
      // The backup is complete, whether the gateway records it or not.
      const onFault = ({ message }: Error) => session.printNote(`The gateway could not record this backup: ${message}`);
      if (keys > 0) await session.call('POST', '/backups', { keys }).catch(onFault);
    });
}

/** Copies a file up to its last complete line. @returns the number of its keys, and the cursor after the last one */
async function copy(session: Session, file: string, refuse: (message: string) => never) {
  const lines = linesOf(createReadStream(file));
  const first = await lines.next().catch(({ message }: Error) => refuse(message));
  const header = readHeader(first.done ? undefined : first.value);
  if (typeof header === 'string') return refuse(`${file}: ${header}`);
  session.write(headerLine(header));
  let [keys, after]: [number, string | undefined] = [0, undefined];
  for await (const line of lines) {
    const read = readLine(line);
    if (read === undefined) {
      if (!line.isEnded) break;
      return refuse(`${file}: line ${line.number} is not in backup format.`);
    }
    if ('end' in read) return { keys, after, at: header.at, isWhole: true };
    session.write(keyLine(read));
    keys += 1;
    after = writeCursor(read);
  }
  return { keys, after, at: header.at, isWhole: false };
}

/**
 * Writes the remaining keys, and lists those that are left out. Writes the header first, unless a backup is resumed.
 * @returns how many keys were written and how many were left out
 * @throws {AdminError} 409 if the list was reindexed in the meantime: keys may have been added to a page already read
 */
async function goOn(session: Session, begun: Awaited<ReturnType<typeof copy>> | undefined) {
  let leftOut = 0;
  let keys = begun?.keys ?? 0;
  let at = begun?.at;
  for await (const page of session.parts<BackupAnswer>('/backup', begun?.after ? { after: begun.after } : {})) {
    if (at === undefined) session.write(headerLine({ at: page.at, plans: page.plans ?? {} }));
    at ??= page.at;
    session.write(page.keys.map(keyLine).join(''));
    keys += page.keys.length;
    for (const { id, reason } of page.leftOut) session.printNote(harmless(`Left out: ${id}: ${reason}`));
    leftOut += page.leftOut.length;
    session.progress(`${keys} keys`, page.next === undefined);
  }
  const query = { action: 'key.reindex', target: '*', from: at ?? '', limit: '1' };
  const since = await firstFilled<ActivityAnswer>(session.get, '/activity', query, ({ activity }) => activity);
  if (since.activity.length > 0) throw new AdminError('conflict', REINDEXED, { status: 409 });
  return { keys, leftOut };
}

const REINDEXED = 'The list of keys was reindexed during this backup, so it may lack keys. Run: ctl backup';

/**
 * A backup is a file of JSON lines: a header with the plan table, one line per key, and a last line with the number of
 * keys. A file without that last line is incomplete.
 */

const FORMAT = 'animal-store-backup';
const VERSION = 1;

/** No key has a longer line. A line of this length fits into one call, even if decoding makes it longer. */
const MAX_LINE_BYTES = 300_000;
const LINE_FEED = 10;

export interface Line {
  readonly number: number;
  /** Empty if the line is too long. */
  readonly text: string;
  readonly isTooLong: boolean;
  /** Whether the line ends with a line feed. */
  readonly isEnded: boolean;
}

const Header = z.object({
  format: z.literal(FORMAT),
  version: z.unknown(),
  /** When the backup began. */
  at: z.coerce.string(),
  plans: z.custom<NonNullable<BackupAnswer['plans']>>((plans) => typeof plans === 'object' && plans !== null),
});

const headerLine = ({ at, plans }: Omit<z.infer<typeof Header>, 'format' | 'version'>): string =>
  `${JSON.stringify({ format: FORMAT, version: VERSION, at, plans })}\n`;
const keyLine = (key: BackedUpKey): string => `${JSON.stringify(key)}\n`;

/** Reads the header. @returns a message if it is invalid */
export function readHeader(line: Line | undefined): z.infer<typeof Header> | string {
  const { data } = Header.safeParse(valueIn(line?.text ?? ''));
  if (data === undefined) return 'This is not a backup of keys: `ctl backup` did not write its first line.';
  if (data.version === VERSION) return data;
  return `This is a backup of version ${data.version}; this program reads version ${VERSION}.`;
}

const Entry = z.union([
  z.strictObject({ id: z.string(), createdAt: z.number(), fields: z.record(z.string(), z.string()) }),
  z.object({ end: z.literal(true), keys: z.number() }),
]);

/** Reads a line after the header; undefined if it is neither a key nor the end. */
export const readLine = ({ text }: Line): z.infer<typeof Entry> | undefined => Entry.safeParse(valueIn(text)).data;

function valueIn(text: string): unknown {
  try {
    return JSON.parse(text);
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
