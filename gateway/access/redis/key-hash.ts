import { full, type Level } from '../bucket.ts';
import type { KeyChange, KeyEntry, KeyRecord, KeyState } from '../keys.ts';
import { isPlanName, MAX_LIMIT, parseLimit } from '../plans.ts';
import type { Mark } from '../usage.ts';
import { DAY, MINUTE } from '../verdict.ts';
import type { Fields } from './change-hash.ts';

/** How an API key is written in its Redis hash: times as decimal Unix seconds, the rest as a person would type it. */

export const keyOf = (id: string): string => `gateway:key:{${id}}`;

/** What a key that was revoked has used, on the same slot. */
export const usageOf = (id: string): string => `gateway:usage:{${id}}`;

/** The fields of the record, each with the member that it holds. */
const RECORD = {
  plan: 'plan',
  name: 'name',
  secret: 'secret',
  oldSecret: 'old_secret',
  oldSecretUntil: 'old_secret_until',
  createdAt: 'created_at',
  expiresAt: 'expires_at',
  disabled: 'disabled',
  minute: 'minute',
  day: 'day',
} as const satisfies Record<keyof KeyRecord, string>;

/** The members that are there, as fields; undefined where a member is. */
export function toFields(record: Partial<KeyRecord>): Fields {
  const members = Object.keys(record) as (keyof KeyRecord)[];
  return Object.fromEntries(members.map((member) => [RECORD[member], toText(member, record[member])]));
}

/** A new key's hash. */
export function toHash(record: KeyRecord): Record<string, string> {
  const fields = Object.entries(toFields(record));
  return Object.fromEntries(fields.filter((field): field is [string, string] => field[1] !== undefined));
}

function toText(member: keyof KeyRecord, value: KeyRecord[keyof KeyRecord]): string | undefined {
  switch (member) {
    case 'oldSecretUntil':
    case 'createdAt':
    case 'expiresAt':
      return toSeconds(value as number | undefined);
    case 'disabled':
      return value ? '1' : undefined;
    default:
      return value?.toString();
  }
}

/** What a record was read from, to be compared with what is there when it is changed. */
export const recordFields = (hash: Readonly<Record<string, string>>): Fields =>
  Object.fromEntries(Object.values(RECORD).map((field) => [field, hash[field]]));

/** A lifted ban takes the early requests and the series with it: whoever is let in again begins anew. */
export function banFields(ban: KeyChange['ban']): Fields {
  if (ban === undefined) return {};
  if (ban !== 'lift') {
    const until = toSeconds(ban.until);
    return { banned_until: until, ban_reason: ban.text, ban_reason_until: until };
  }
  const gone = ['banned_until', 'bans', 'waiting', 'ban_reason', 'ban_reason_until'];
  return Object.fromEntries(gone.map((field) => [field, undefined]));
}

/** The whole record; undefined for a hash that decide.lua could make nothing of. */
export function toRecord(id: string, hash: Record<string, string>): KeyRecord | undefined {
  const { isReadable, record } = toEntry(id, hash);
  if (!isReadable || hash.secret === undefined || !isPlanName(record.plan)) return undefined;
  return { ...record, plan: record.plan, secret: hash.secret, oldSecret: hash.old_secret };
}

/** A hash as an entry for people. What decide.lua could make nothing of is shown as unreadable. */
export function toEntry(id: string, hash: Record<string, string>): KeyEntry {
  const plan = hash.plan ?? '';
  const expiresAt = fromSeconds(hash.expires_at);
  const isReadable = hash.secret !== undefined && isPlanName(plan) && (expiresAt !== undefined || !hash.expires_at);
  const record = {
    plan,
    name: hash.name ?? '',
    createdAt: fromSeconds(hash.created_at) ?? 0,
    oldSecretUntil: fromSeconds(hash.old_secret_until),
    expiresAt,
    disabled: !['', '0'].includes(hash.disabled ?? ''),
    minute: parseLimit(hash.minute ?? ''),
    day: parseLimit(hash.day ?? ''),
  };
  return { id, isReadable, record, ...toState(hash) };
}

/** What decisions left behind, read as decide.lua reads it. The queue is left out: people have no use for it. */
function toState(hash: Record<string, string>): KeyState {
  const banReasonUntil = fromSeconds(hash.ban_reason_until);
  return {
    minute: toLevel(hash.minute_left, MINUTE),
    day: toLevel(hash.day_left, DAY),
    queue: undefined,
    asOf: fromSeconds(hash.as_of),
    bannedUntil: fromSeconds(hash.banned_until) ?? 0,
    bans: toCount(hash.bans),
    admitted: toCount(hash.admitted),
    refused: toCount(hash.refused),
    shadowed: toCount(hash.shadowed),
    usage: { minutes: toMarks(hash.usage_minutes), days: toMarks(hash.usage_days) },
    banReason: banReasonUntil === undefined ? undefined : { text: hash.ban_reason ?? '', until: banReasonUntil },
  };
}

/** What is no mark, as a hand on the data can leave it, is left out. */
function toMarks(text = ''): Mark[] {
  const marks = text.matchAll(/(?<!\S)(\d{1,8}):(\d{1,16}):(\d{1,16})(?!\S)/g);
  return [...marks].map(([, at, admitted, refused]) => ({
    at: Number(at),
    admitted: Number(admitted),
    refused: Number(refused),
  }));
}

const toCount = (text = ''): number => (/^\d{1,15}$/.test(text) ? Number(text) : 0);

/** One that is not there, or cannot be read, counts as full. */
function toLevel(text = '', window: number): Level {
  const [, tokens, decimals = ''] = /^(\d{1,10})\.?(\d{0,12})$/.exec(text) ?? [];
  if (tokens === undefined) return full(MAX_LIMIT);
  return { tokens: Number(tokens), parts: Math.floor(Number(`0.${decimals}`) * window + 0.5) };
}

function toSeconds(time: number | undefined): string | undefined {
  return time === undefined ? undefined : (time / 1e6).toFixed(6);
}

function fromSeconds(text: string | undefined): number | undefined {
  return text === undefined || !/^\d{1,10}(?:\.\d*)?$/.test(text) ? undefined : Math.round(Number(text) * 1e6);
}
