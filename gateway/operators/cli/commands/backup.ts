import { createReadStream } from 'node:fs';
import type { Command } from 'commander';
import type { BackupAnswer } from '../../api/answers.ts';
import { AdminError } from '../admin-client.ts';
import { cursorOf, endLine, headerLine, keyLine, linesOf, readHeader, readLine } from '../backup-file.ts';
import { EXIT, endWith } from '../outcome.ts';
import type { Session } from '../session.ts';
import { harmless } from '../table.ts';

export const PLACE = 8;

/** Adds `backup`. Each page is written as it arrives. */
export function add(program: Command, session: Session): void {
  const backup = program
    .command('backup')
    .description('write all keys and the plan table to standard output, for `restore`')
    .option(
      '--resume <file>',
      'a backup that was cut off: copy its contents, and continue after its last complete line',
    )
    .addHelpText(
      'after',
      `
Keys are written with their digests, limits, bans and usage, the oldest first, while clients are served. Secrets are not included: nobody
can use a backup as a key, but it names customers, so keep it private. Revoked keys, operators' tokens and
the audit log are left out. Each key is written as it is when it is read; keys issued in the meantime come last.

The last line counts the keys: a file without it was cut off. Resuming reads one file and writes another; they must not be
the same. The gateway records that a backup is complete, for the alert
GatewayBackupMissing; this requires the role operator. With --json, standard error also reports the count.

A key whose data no restore would accept, for example after an edit by hand, is left out and listed on standard error with the reason. The command
then exits with 1, and the gateway does not record the backup.

Examples:
  (umask 077 && ctl backup > keys.jsonl)
  ctl backup --resume keys.jsonl > whole.jsonl
  ctl restore < whole.jsonl`,
    )
    .action(async ({ resume }: { resume?: string }) => {
      const cutOff = (fault: Error): never => {
        if (!(fault instanceof AdminError && fault.status === 409))
          session.tell('The backup was cut off. To continue: ctl backup --resume <this file> > <another file>');
        throw fault;
      };
      const refuse = (message: string) => backup.error(`error: ${message}`);
      const begun = resume === undefined ? undefined : await copy(session, resume, refuse);
      const { keys, leftOut } = begun?.isWhole ? { ...begun, leftOut: 0 } : await goOn(session, begun).catch(cutOff);
      session.write(endLine(keys));
      if (session.isJson) session.tell(JSON.stringify({ keys, leftOut }));
      if (leftOut > 0) {
        session.tell(`Existing keys that are not in this backup: ${leftOut}. Fix them, or issue new ones.`);
        return endWith(EXIT.fault);
      }
      // The backup is complete, whether the gateway records it or not.
      const untold = ({ message }: Error) => session.tell(`The gateway could not record this backup: ${message}`);
      if (keys > 0) await session.call('POST', '/backups', { keys }).catch(untold);
    });
}

/** What was copied from an incomplete backup. */
interface Begun {
  readonly keys: number;
  /** The cursor after the last key. */
  readonly after: string | undefined;
  readonly isWhole: boolean;
}

/** Copies a file up to its last complete line. */
async function copy(session: Session, file: string, refuse: (message: string) => never): Promise<Begun> {
  const stream = createReadStream(file);
  const lines = linesOf(stream);
  const first = await lines.next().catch(({ message }: Error) => refuse(message));
  const header = readHeader(first.done ? undefined : first.value);
  if (typeof header === 'string') return refuse(`${file}: ${header}`);
  session.write(headerLine(header));
  let [keys, after]: [number, string | undefined] = [0, undefined];
  for await (const line of lines) {
    const read = readLine(line);
    if (read === undefined) {
      if (!line.isEnded) break;
      return refuse(`${file}: line ${line.number} is not a line of a backup.`);
    }
    if ('end' in read) return { keys, after, isWhole: true };
    session.write(keyLine(read.key));
    keys += 1;
    after = cursorOf(read.key);
  }
  return { keys, after, isWhole: false };
}

/**
 * Writes the remaining keys, with the header if nothing was begun, and lists those that are left out.
 * @returns the numbers of both
 */
async function goOn(session: Session, begun: Begun | undefined): Promise<{ keys: number; leftOut: number }> {
  let leftOut = 0;
  let keys = begun?.keys ?? 0;
  let isHeaderDue = begun === undefined;
  for await (const page of session.parts<BackupAnswer>('/backup', begun?.after ? { after: begun.after } : {})) {
    if (isHeaderDue) session.write(headerLine({ at: page.at, plans: page.plans ?? {} }));
    isHeaderDue = false;
    session.write(page.keys.map(keyLine).join(''));
    keys += page.keys.length;
    for (const { id, reason } of page.leftOut) session.tell(harmless(`Left out: ${id}: ${reason}`));
    leftOut += page.leftOut.length;
    session.progress(`${keys} keys`, page.next === undefined);
  }
  return { keys, leftOut };
}
