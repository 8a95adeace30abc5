import type { Command } from 'commander';
import type { BackedUpKey } from '../../../stores/keys.ts';
import type { RestoreAnswer } from '../../api/answers.ts';
import { EXIT, endWith, type Session } from '../session.ts';
import { harmless } from '../text.ts';
import { type Line, linesOf, readHeader, readLine } from './backup.ts';

/** The number of keys per call, so low that reading it does not block the gateway's clients. */
const BATCH_KEYS = 100;
const BATCH_CHARACTERS = 64_000;
const MOST_SHOWN = 20;

export function add(program: Command, session: Session): void {
  const restore = program
    .command('restore')
    .description('restore what is missing, from a backup on standard input')
    .option('--strict', 'restore nothing if any line would be rejected')
    .option('--any-age', 'accept a backup older than 35 days: keys revoked since then may work again')
    .addHelpText(
      'after',
      `
Only missing data is written: existing keys stay as they are, and so do fields of plans, except in built-in plans that
nobody has changed. It is therefore safe to repeat, and to run while clients are served. A key works again from the next request on, with its ban and with what was left of its limits.

A key that has been revoked since stays revoked. Gateways remember revocations for 36 days, so a backup older than 35 days needs --any-age.
If Redis (or DATA_DIR) was lost, revocations are lost too, and a key that was revoked after the backup works again: revoke it
again.

It exits with 0 if everything is in place, with 1 if a line was rejected or the file was cut off (the rest is restored), with 2
if the input is not a backup, and with 4 if it is too old (nothing is restored).

Examples:
  ctl restore < keys.jsonl
  gunzip -c keys.jsonl.gz | ctl restore
  ctl --json restore < keys.jsonl`,
    )
    .action(async ({ anyAge = false, strict = false }: { anyAge?: boolean; strict?: boolean }) => {
      if (process.stdin.isTTY)
        restore.error('error: pass a backup on standard input, as in `ctl restore < keys.jsonl`.');
      const lines = linesOf(process.stdin);
      const first = await lines.next();
      const header = readHeader(first.done ? undefined : first.value);
      if (typeof header === 'string') return restore.error(`error: ${header}`);
      const trial = new Sum(session, header.at, anyAge, true);
      if (strict) await trial.send({ plans: header.plans });
      const all = strict ? await checked(lines, trial) : lines;
      if (all === undefined) return;
      const sum = new Sum(session, header.at, anyAge, false);
      await sum.send({ plans: header.plans });
      const end = await restoreKeys(all, sum);
      const isWhole = end === sum.keys;
      session.print({ ...sum.counts(), isWhole }, () => sum.describe());
      if (end === undefined)
        session.tell('The backup was cut off: its last line is missing. The lines before it were restored.');
      else if (!isWhole) session.tell(`The backup had ${end} keys, but the file has ${sum.keys}.`);
      if (!isWhole || sum.faults > 0) endWith(EXIT.fault);
    });
}

/**
 * Tries a whole backup without writing anything, and keeps its lines.
 * @returns undefined if part of it would be rejected, which is then printed
 */
async function checked(lines: AsyncIterable<Line>, sum: Sum): Promise<readonly Line[] | undefined> {
  const all: Line[] = [];
  for await (const line of lines) all.push(line);
  const end = await restoreKeys(all, sum);
  if (end === sum.keys && sum.faults === 0) return all;
  sum.print(end === sum.keys ? 'Nothing was restored.' : 'The backup is incomplete. Nothing was restored.');
  endWith(EXIT.fault);
  return undefined;
}

/** @returns the number of keys in the last line; undefined if there is none */
async function restoreKeys(lines: AsyncIterable<Line> | Iterable<Line>, sum: Sum): Promise<number | undefined> {
  let [keys, characters]: [BackedUpKey[], number] = [[], 0];
  const seen = new Set<string>();
  let end: number | undefined;
  const flush = async () => {
    if (keys.length > 0) await sum.send({ keys });
    [keys, characters] = [[], 0];
  };
  for await (const line of lines) {
    const read = readLine(line);
    if (read === undefined || end !== undefined) {
      // The last line of a file that was cut off may be incomplete.
      const isHalf = !line.isEnded && !line.isTooLong && end === undefined;
      const why = end === undefined ? 'It is not a line of a backup.' : 'It comes after the last line of the backup.';
      if (!isHalf) sum.reject(`line ${line.number}`, line.isTooLong ? 'It is too long.' : why);
    } else if ('end' in read) {
      end = read.end;
    } else if (seen.has(read.key.id)) {
      sum.keys += 1;
      sum.reject(read.key.id, `Line ${line.number} repeats this key.`);
    } else {
      seen.add(read.key.id);
      if (keys.length === BATCH_KEYS || characters + line.text.length > BATCH_CHARACTERS) await flush();
      keys.push(read.key);
      characters += line.text.length;
    }
  }
  await flush();
  return end;
}

class Sum {
  readonly #session: Session;
  readonly #counts = { restored: 0, present: 0, revoked: 0 };
  readonly #rejected: { readonly id: string; readonly reason: string }[] = [];
  #plans: RestoreAnswer['plans'];
  readonly #at: string;
  readonly #path: string;
  keys = 0;
  faults = 0;

  /** @param at when the backup was made */
  constructor(session: Session, at: string, anyAge: boolean, dryRun: boolean) {
    this.#session = session;
    this.#at = at;
    this.#path = `/restore?anyAge=${anyAge}&dryRun=${dryRun}`;
  }

  /** Prints the result of a backup of which nothing was restored. */
  print(note: string): void {
    const none = { restored: 0, present: 0, revoked: 0, rejected: this.faults, faults: this.#rejected, isWhole: false };
    this.#session.print(none, () => [...this.#notTaken(), note].map(harmless).join('\n'));
  }

  #notTaken(): string[] {
    const more = this.faults > MOST_SHOWN ? [`Rejected: ${this.faults - MOST_SHOWN} more.`] : [];
    return [...this.#rejected.map(({ id, reason }) => `Rejected: ${id}: ${reason}`), ...more];
  }

  async send(page: { plans?: unknown; keys?: readonly BackedUpKey[] }): Promise<void> {
    const answer = await this.#session.call<RestoreAnswer>('POST', this.#path, { at: this.#at, ...page });
    this.#plans ??= answer.plans;
    for (const name of ['restored', 'present', 'revoked'] as const) this.#counts[name] += answer[name];
    for (const { id, reason } of answer.rejected) this.reject(id, reason);
    for (const field of answer.plans?.rejected ?? [])
      this.reject(field, 'No plan can have this field with this value.');
    this.keys += page.keys?.length ?? 0;
    this.#session.progress(`${this.keys} keys`, false);
  }

  reject(id: string, reason: string): void {
    this.faults += 1;
    if (this.#rejected.length < MOST_SHOWN) this.#rejected.push({ id, reason });
  }

  counts() {
    return { ...this.#counts, rejected: this.faults, faults: this.#rejected, plans: this.#plans };
  }

  describe(): string {
    const { restored, present, revoked } = this.#counts;
    const { restored: fields = [], kept = [] } = this.#plans ?? {};
    const lines = [
      `Keys restored: ${restored}. Fields of plans restored: ${fields.length}.`,
      present > 0 && `Keys that existed already: ${present}.`,
      revoked > 0 && `Keys that have been revoked since, and stay revoked: ${revoked}.`,
      ...kept.map(({ field, value, backup }) => `Not changed: ${field} is ${value}, but was ${backup} in the backup.`),
      ...this.#notTaken(),
    ].filter((line) => line !== false);
    return lines.map(harmless).join('\n');
  }
}
