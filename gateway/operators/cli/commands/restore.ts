import type { BackedUpKey } from '../../../stores/keys.ts';
import type { RestoreAnswer } from '../../api/answers.ts';
import type { Command } from '../command.ts';
import { EXIT, type Session } from '../session.ts';
import { harmless } from '../text.ts';
import { type Line, linesOf, readHeader, readLine } from './backup.ts';

/** The maximum number of keys per call. Reading more at once could delay the gateway's clients. */
const BATCH_KEYS = 100;
const BATCH_CHARACTERS = 64_000;
const MOST_SHOWN = 20;

export function add(program: Command, session: Session): void {
  const restore = program
    .sub('restore', 'restore missing keys and plans from a backup on standard input')
    .option('--strict', 'restore nothing if any line would be rejected')
    .option('--any-age', 'accept a backup older than 35 days: keys revoked since then may work again')
    .notes(`
Only missing data is written: existing keys and plan fields are not changed, except in built-in plans that nobody has
changed. The command is therefore safe to repeat, and to run while clients are served. A restored key works at once,
with its ban and the requests that it had left.

A key that was revoked after the backup stays revoked. Gateways remember revocations for 36 days, so a backup older than
35 days requires --any-age. If Redis (or DATA_DIR) was lost, revocations are lost too, and such a key works again:
revoke it again.

Exits with 0 if nothing is missing afterwards, with 1 if a line was rejected or the file was cut off (the rest is
restored), with 2 if the input is not a backup, and with 4 if the backup is too old (nothing is restored).

Examples:
  ctl restore < keys.jsonl
  gunzip -c keys.jsonl.gz | ctl restore
  ctl --json restore < keys.jsonl`)
    .action(async ({ anyAge = false, strict = false }: { anyAge?: boolean; strict?: boolean }) => {
      if (process.stdin.isTTY)
        restore.error('error: pass a backup on standard input, as in `ctl restore < keys.jsonl`.');
      const input = linesOf(process.stdin);
      const first = await input.next();
      const header = readHeader(first.done ? undefined : first.value);
      if (typeof header === 'string') return restore.error(`error: ${header}`);
      const kept: Line[] = [];
      if (strict) {
        for await (const line of input) kept.push(line);
        const { isWhole, rejected, faults } = await restoreAll(session, header, kept, { anyAge, dryRun: true });
        if (!isWhole || rejected > 0) {
          const note = isWhole ? 'Nothing was restored.' : 'The backup is incomplete. Nothing was restored.';
          const nothing = { restored: 0, present: 0, revoked: 0, rejected, faults, isWhole: false };
          session.print(nothing, () => [...notTaken(nothing), note].map(harmless).join('\n'));
          process.exitCode = EXIT.fault;
          return;
        }
      }
      const done = await restoreAll(session, header, strict ? kept : input, { anyAge, dryRun: false });
      const { end, keys, ...shown } = done;
      session.print(shown, () => describe(done));
      if (end === undefined)
        session.printNote('The backup was cut off: its last line is missing. The lines before it were restored.');
      else if (!done.isWhole) session.printNote(`The backup had ${end} keys, but the file has ${keys}.`);
      if (!done.isWhole || done.rejected > 0) process.exitCode = EXIT.fault;
    });
}

/** Sends a backup in parts, and adds up the responses. */
async function restoreAll(
  session: Session,
  { at, plans: given }: { readonly at: string; readonly plans: unknown },
  lines: AsyncIterable<Line> | Iterable<Line>,
  asked: { readonly anyAge: boolean; readonly dryRun: boolean },
) {
  const counts = { restored: 0, present: 0, revoked: 0, rejected: 0 };
  const faults: { readonly id: string; readonly reason: string }[] = [];
  let plans: RestoreAnswer['plans'];
  let keys = 0;
  /** The number of keys in the last line. */
  let end: number | undefined;

  function reject(id: string, reason: string): void {
    counts.rejected += 1;
    if (faults.length < MOST_SHOWN) faults.push({ id, reason });
  }

  async function send(page: { plans?: unknown; keys?: readonly BackedUpKey[] }): Promise<void> {
    const path = `/restore?anyAge=${asked.anyAge}&dryRun=${asked.dryRun}`;
    const answer = await session.call<RestoreAnswer>('POST', path, { at, ...page });
    plans ??= answer.plans;
    for (const name of ['restored', 'present', 'revoked'] as const) counts[name] += answer[name];
    for (const { id, reason } of answer.rejected) reject(id, reason);
    for (const field of answer.plans?.rejected ?? []) reject(field, 'No plan can have this field with this value.');
    keys += page.keys?.length ?? 0;
    session.progress(`${keys} keys`, false);
  }

  await send({ plans: given });
  let [batch, characters]: [BackedUpKey[], number] = [[], 0];
  const seen = new Set<string>();
  const flush = async () => {
    if (batch.length > 0) await send({ keys: batch });
    [batch, characters] = [[], 0];
  };
  for await (const line of lines) {
    const read = readLine(line);
    if (read === undefined || end !== undefined) {
      // The last line of a file that was cut off may be incomplete.
      const isHalf = !line.isEnded && !line.isTooLong && end === undefined;
      const why = end === undefined ? 'It is not in backup format.' : 'It follows the last line of the backup.';
      if (!isHalf) reject(`line ${line.number}`, line.isTooLong ? 'It is too long.' : why);
    } else if ('end' in read) {
      end = read.keys;
    } else if (seen.has(read.id)) {
      keys += 1;
      reject(read.id, `Line ${line.number} repeats this key.`);
    } else {
      seen.add(read.id);
      if (batch.length === BATCH_KEYS || characters + line.text.length > BATCH_CHARACTERS) await flush();
      batch.push(read);
      characters += line.text.length;
    }
  }
  await flush();
  return { ...counts, faults, plans, isWhole: end === keys, end, keys };
}

type Result = Awaited<ReturnType<typeof restoreAll>>;

function notTaken({ faults, rejected }: Pick<Result, 'faults' | 'rejected'>): string[] {
  const more = rejected > faults.length ? [`Rejected: ${rejected - faults.length} more.`] : [];
  return [...faults.map(({ id, reason }) => `Rejected: ${id}: ${reason}`), ...more];
}

function describe(result: Result): string {
  const { restored, present, revoked, plans } = result;
  const { restored: fields = [], kept = [] } = plans ?? {};
  const lines = [
    `Keys restored: ${restored}. Plan fields restored: ${fields.length}.`,
    present > 0 && `Keys that already existed: ${present}.`,
    revoked > 0 && `Keys that were revoked after the backup and stay revoked: ${revoked}.`,
    ...kept.map(({ field, value, backup }) => `Not changed: ${field} is ${value}, but was ${backup} in the backup.`),
    ...notTaken(result),
  ].filter((line) => line !== false);
  return lines.map(harmless).join('\n');
}
