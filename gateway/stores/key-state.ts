import { DAY, full, MINUTE, readLevel, SECOND } from '../limiter/bucket.ts';
import type { KeyChange, KeyEntry, KeyState, Mark, StoredLevel } from '../limiter/key-record.ts';
import { inForceInWords, isLimit, MAX_LIMIT } from '../limiter/plans.ts';
import { NO_REFUSALS, type Refusals } from '../limiter/refusals.ts';
import { type FieldChanges, type Fields, readTime, writeTime } from './storage.ts';

/** A ban that begins this long after the end of the last one starts a new series. */
const SERIES = DAY;

/** An invalid value in a stored key, and the value that is in force instead, if there is one. */
export type RejectedField = NonNullable<KeyEntry['rejected']>[number];

/** What follows from an invalid value of a readable key if the last good one was none. */
const WITHOUT: Readonly<Record<string, string>> = {
  minute: "the plan's limit is in force",
  day: "the plan's limit is in force",
  expires_at: 'the key does not expire',
  tags: 'the key has no tags',
  banned_until: 'no ban is in force',
  left: 'both buckets count as full',
  refusals: 'earlier refusals are forgotten',
};

/** What is in force in place of an invalid value of a readable key. */
export const inForceInstead = ({ field, kept }: RejectedField): string =>
  (kept === undefined ? WITHOUT[field] : undefined) ?? inForceInWords(kept);

/** The fields of a key that decisions write: levels, refusals, bans, and when the key and its secrets were used. */

/** A list of secret ids, each with its last use. */
export const USED = 'used';

/**
 * Lifting a ban also clears the line, the strikes and the series. A reset also fills both buckets. An operator's ban
 * leaves the current series of bans as it is, and clears one that is over.
 * @param stored the current fields
 * @param now the current time in microseconds
 */
export function writeBan(ban: KeyChange['ban'], stored: Fields = {}, now = 0): FieldChanges {
  if (ban === undefined) return {};
  if (typeof ban === 'object') {
    const until = writeTime(ban.until);
    const isOver = readBan(stored).until + SERIES <= now;
    const series = isOver && { bans: undefined };
    return {
      banned_until: until,
      ban_reason: ban.text,
      ban_reason_until: until,
      ban_reason_since: writeTime(ban.since),
      ...series,
    };
  }
  const ofBan = ['banned_until', 'bans', 'ban_reason', 'ban_reason_until', 'ban_reason_since', 'ban_decided'];
  const gone = [...ofBan, 'refusals'];
  const forgotten = Object.fromEntries(gone.map((field) => [field, undefined]));
  return ban === 'lift' ? forgotten : { ...forgotten, ...writeFull(stored, now) };
}

/**
 * Levels above every limit, which the next decision treats as full. The time of the last decision stays, because usage
 * is counted by it. Requests that a gateway admitted from levels as of `reset_at` or earlier cost no token when they
 * are charged.
 */
function writeFull({ left }: Fields, now: number): FieldChanges {
  const { asOf } = readLeft(left);
  return {
    left: asOf === undefined ? undefined : `${writeTime(asOf)} ${MAX_LIMIT} ${MAX_LIMIT}`,
    reset_at: writeTime(Math.max(now, asOf ?? 0)),
  };
}

/** The results of decisions, as decide.lua writes them. Removes the field of anything that is over, such as a ban. */
export function writeStateChanges(state: KeyState): FieldChanges {
  const { asOf, bannedUntil, bans, admitted, refused, shadowed, usage, used, refusals, banReason } = state;
  const levels = [writeLevel(state.minute, MINUTE), writeLevel(state.day, DAY)];
  return {
    ...(asOf !== undefined && { left: [writeTime(asOf), ...levels].join(' ') }),
    refusals: writeRefusals(refusals),
    banned_until: bannedUntil === 0 ? undefined : writeTime(bannedUntil),
    bans: writeCount(bans),
    admitted: writeCount(admitted),
    refused: writeCount(refused),
    shadowed: writeCount(shadowed),
    usage_minutes: writeMarks(usage.minutes),
    usage_days: writeMarks(usage.days),
    [USED]: writeUsed(used),
    ban_reason: banReason?.text || undefined,
    ban_reason_until: banReason && writeTime(banReason.until),
    ban_reason_since: writeTime(banReason?.since),
    ban_decided: bannedUntil === 0 || banReason?.until === bannedUntil ? undefined : writeTime(bannedUntil),
  };
}

/**
 * When the ban ends, or 0. People can type anything there: in place of a value that is not a time, the end that an
 * operator or a decision has set stays in force.
 */
export function readBan(hash: Fields): { readonly until: number; readonly isRejected: boolean } {
  const { banned_until: text = '' } = hash;
  const until = text === '' ? 0 : readTime(text);
  if (until !== undefined) return { until, isRejected: false };
  return { until: Math.max(...bansSet(hash)), isRejected: true };
}

/** The ends of the last bans that an operator and a decision have set; 0 for none. */
export const bansSet = (hash: Fields): number[] =>
  [hash.ban_reason_until, hash.ban_decided].map((text) => readTime(text) ?? 0);

/** What decide.lua reports as invalid in the results of decisions. It then decides as if the field were missing. */
export function rejectedState({ left, refusals }: Fields): RejectedField[] {
  const rejected: RejectedField[] = [];
  if (left !== undefined && readLeft(left).asOf === undefined)
    rejected.push({ field: 'left', value: left, kept: undefined });
  if (refusals !== undefined && !THREE_TIMES.test(refusals))
    rejected.push({ field: 'refusals', value: refusals, kept: undefined });
  return rejected;
}

/** Reads the results of decisions as decide.lua does. */
export function readState(hash: Fields): KeyState {
  const [until, since] = [readTime(hash.ban_reason_until), readTime(hash.ban_reason_since)];
  const left = readLeft(hash.left);
  const { asOf } = left;
  const usage = { minutes: readMarks(hash.usage_minutes, asOf, MINUTE), days: readMarks(hash.usage_days, asOf, DAY) };
  return {
    ...left,
    refusals: readRefusals(hash.refusals),
    bannedUntil: readBan(hash).until,
    bans: readCount(hash.bans),
    admitted: readCount(hash.admitted),
    refused: readCount(hash.refused),
    shadowed: readCount(hash.shadowed),
    used: readUsed(hash[USED]),
    usage,
    banReason: until === undefined ? undefined : { text: hash.ban_reason ?? '', until, since },
  };
}

/**
 * Like `1795132800.125000 1795132810.125000 0`: the times `lineUntil`, `strikesUntil` and `fullAt` of Refusals. A 0
 * means never.
 */
function writeRefusals({ lineUntil, strikesUntil, fullAt }: Refusals): string | undefined {
  if (lineUntil + strikesUntil + fullAt === 0) return undefined;
  return [lineUntil, strikesUntil, fullAt].map((time) => (time === 0 ? '0' : writeTime(time))).join(' ');
}

const THREE_TIMES = /^(\S+) (\S+) (\S+)$/;

function readRefusals(text: string | undefined): Refusals {
  if (text === undefined) return NO_REFUSALS;
  const [, ...times] = THREE_TIMES.exec(text) ?? [];
  const [lineUntil = 0, strikesUntil = 0, fullAt = 0] = times.map((time) => readTime(time));
  return { lineUntil, strikesUntil, fullAt };
}

const writeCount = (count: number): string | undefined => (count === 0 ? undefined : String(count));

const readCount = (text = ''): number => (/^\d{1,15}$/.test(text) ? Number(text) : 0);

/** The time of the levels, then both levels. */
const LEFT = /^(\S+) (-?\d+\.?\d*\/?\d*) (-?\d+\.?\d*\/?\d*)$/;
const LONGEST_LEFT = 100;

/** If the string is missing or unreadable, both buckets are full. */
function readLeft(text = ''): Pick<KeyState, 'asOf' | 'minute' | 'day'> {
  const [, time, minute, day] = (text.length <= LONGEST_LEFT && LEFT.exec(text)) || [];
  return { asOf: readTime(time), minute: readStoredLevel(minute, MINUTE), day: readStoredLevel(day, DAY) };
}

/** The number of decimals that distinguish any two fractions of a window in microseconds. */
const decimalsOf = (window: number): number => (window === DAY ? 11 : 8);

/** `59.50000000/60`: the tokens, which can be below zero, and the limit at that time. */
function writeLevel({ tokens, fraction, limit }: StoredLevel, window: number): string {
  const of = limit === undefined ? '' : `/${limit}`;
  if (fraction === 0) return `${tokens}${of}`;
  const [whole, part] = tokens < 0 ? [`-${-tokens - 1}`, window - fraction] : [tokens, fraction];
  const unit = 10 ** decimalsOf(window);
  return `${whole}.${String(Math.floor((part / window) * unit + 0.5)).padStart(decimalsOf(window), '0')}${of}`;
}

/** A missing or unreadable level counts as full. */
function readStoredLevel(text: string | undefined, window: number): StoredLevel {
  const level = readLevel(text ?? '', window);
  return level === undefined ? full(MAX_LIMIT) : { ...level, limit: isLimit(level.limit) ? level.limit : undefined };
}

/** `29918880:120:4` for each mark. */
const writeMarks = (marks: readonly Mark[]): string | undefined =>
  marks.map(({ at, admitted, refused }) => `${at}:${admitted}:${refused}`).join(' ') || undefined;

/** A single mark is not stored, but follows from `asOf`. Skips malformed marks, for example after a manual edit. */
function readMarks(text: string | undefined, asOf: number | undefined, unit: number): Mark[] {
  if (text === undefined) return asOf === undefined ? [] : [{ at: Math.floor(asOf / unit), admitted: 0, refused: 0 }];
  const marks = text.matchAll(/(?<!\S)(\d{1,8}):(\d{1,16}):(\d{1,16})(?!\S)/g);
  return [...marks].map(([, ...numbers]) => {
    const [at = 0, admitted = 0, refused = 0] = numbers.map(Number);
    return { at, admitted, refused };
  });
}

/** `k3JtQz81:1795132800` for each secret that was used. */
export const writeUsed = (used: KeyState['used']): string | undefined =>
  Object.entries(used)
    .map(([id, at]) => `${id}:${at / SECOND}`)
    .join(' ') || undefined;

/** Skips malformed entries. */
export const readUsed = (text = ''): KeyState['used'] =>
  Object.fromEntries(
    [...text.matchAll(/(?<!\S)(\w+):(\d{1,10})(?!\S)/g)].map(([, id, seconds]) => [id, Number(seconds) * SECOND]),
  );
