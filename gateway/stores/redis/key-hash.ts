import { full, type Level } from '../../limiter/bucket.ts';
import { DAY, MINUTE } from '../../limiter/clock.ts';
import { readNetworks, readScope, type Secret } from '../../limiter/credential.ts';
import type { KeyChange, KeyEntry, KeyRecord, KeyState } from '../../limiter/key-record.ts';
import { isPlanName, MAX_LIMIT, parseLimit } from '../../limiter/plans.ts';
import type { Mark } from '../../limiter/usage-marks.ts';
import type { Fields } from './change-hash.ts';

/** The Redis hash of an API key: times as decimal Unix seconds, other values as people would type them. */

export const keyOf = (id: string): string => `gateway:key:{${id}}`;

/** What is left of a revoked key, in the same slot. */
export const usageOf = (id: string): string => `gateway:usage:{${id}}`;

/** The fields that are left of a revoked key. */
export const KEPT_OF_REVOKED = ['name', 'plan', 'created_at', 'admitted', 'refused', 'usage_days'];

/**
 * Each secret has a field named by its digest, so that a decision reads it with everything else; and a field for its
 * last use.
 */
const SECRET = 'secret:';
export const USED = 'used:';
/** The number of secrets. It reveals concurrent changes. */
const SECRETS = 'secrets';

/** The other fields of the record, each with its member. */
const RECORD = {
  plan: 'plan',
  name: 'name',
  createdAt: 'created_at',
  expiresAt: 'expires_at',
  disabled: 'disabled',
  minute: 'minute',
  day: 'day',
} as const satisfies Record<Exclude<keyof KeyRecord, 'secrets'>, string>;

type Member = keyof typeof RECORD;

/**
 * The members as fields; undefined removes a field.
 * @param before the present secrets: those missing from the new ones are removed
 */
export function toFields({ secrets, ...record }: Partial<KeyRecord>, before: readonly Secret[] = []): Fields {
  const members = Object.keys(record) as Member[];
  const fields = Object.fromEntries(members.map((member) => [RECORD[member], toText(member, record[member])]));
  if (secrets === undefined) return fields;
  const digests = new Set(secrets.map(({ digest }) => digest));
  const gone = before.map(({ digest }) => digest).filter((digest) => !digests.has(digest));
  return {
    ...fields,
    [SECRETS]: String(secrets.length),
    ...Object.fromEntries(secrets.map((secret) => [SECRET + secret.digest, toSecretText(secret)])),
    ...Object.fromEntries(gone.flatMap((digest) => [SECRET, USED].map((prefix) => [prefix + digest, undefined]))),
  };
}

/** In decide.lua's format: id, end, scope, networks, beginning, name. */
const toSecretText = ({ id, expiresAt, scope, networks, createdAt, name }: Secret): string =>
  [id, toSeconds(expiresAt) ?? '-', scope.join(','), networks.join(',') || '-', toSeconds(createdAt), name].join(' ');

function toSecret(digest: string, text: string): Secret | undefined {
  const [, id, end, scope, networks, created, name] = /^(\w+) (\S+) (\S+) (\S+) (\S+) (.*)$/s.exec(text) ?? [];
  const expiresAt = fromSeconds(end);
  if (id === undefined || (expiresAt === undefined && end !== '-')) return undefined;
  const bounds = { scope: readScope(scope as string), networks: readNetworks(networks as string) };
  return { id, digest, name: name as string, createdAt: fromSeconds(created) ?? 0, expiresAt, ...bounds };
}

function toSecrets(hash: Readonly<Record<string, string>>): Secret[] {
  const fields = Object.entries(hash).filter(([field]) => field.startsWith(SECRET));
  const secrets = fields.map(([field, text]) => toSecret(field.slice(SECRET.length), text));
  return secrets.filter((secret) => secret !== undefined).sort((a, b) => a.createdAt - b.createdAt);
}

const toUsed = (hash: Readonly<Record<string, string>>): Record<string, number> =>
  Object.fromEntries(
    Object.entries(hash)
      .filter(([field]) => field.startsWith(USED))
      .map(([field, text]) => [field.slice(USED.length), fromSeconds(text) ?? 0]),
  );

/** The hash of a new key. */
export function toHash(record: KeyRecord): Record<string, string> {
  const fields = Object.entries(toFields(record));
  return Object.fromEntries(fields.filter((field): field is [string, string] => field[1] !== undefined));
}

function toText(member: Member, value: KeyRecord[Member]): string | undefined {
  switch (member) {
    case 'createdAt':
    case 'expiresAt':
      return toSeconds(value as number | undefined);
    case 'disabled':
      return value ? '1' : undefined;
    default:
      return value?.toString();
  }
}

/** The fields from which a record was read. A change compares them with the present ones. */
export function recordFields(hash: Readonly<Record<string, string>>): Fields {
  const secrets = Object.keys(hash).filter((field) => field.startsWith(SECRET));
  return Object.fromEntries([...Object.values(RECORD), SECRETS, ...secrets].map((field) => [field, hash[field]]));
}

/** Lifting a ban also forgets the early requests and the series: the key starts anew. */
export function banFields(ban: KeyChange['ban']): Fields {
  if (ban === undefined) return {};
  if (ban !== 'lift') {
    const until = toSeconds(ban.until);
    return { banned_until: until, ban_reason: ban.text, ban_reason_until: until };
  }
  const gone = ['banned_until', 'bans', 'waiting', 'ban_reason', 'ban_reason_until', 'ban_decided'];
  return Object.fromEntries(gone.map((field) => [field, undefined]));
}

/** The whole record; undefined for a hash that decide.lua cannot use. */
export function toRecord(id: string, hash: Record<string, string>): KeyRecord | undefined {
  const { isReadable, record } = toEntry(id, hash);
  return isReadable && isPlanName(record.plan) ? { ...record, plan: record.plan } : undefined;
}

/** A hash as an entry for operators. A hash that decide.lua cannot use is shown as unreadable. */
export function toEntry(id: string, hash: Record<string, string>): KeyEntry {
  const plan = hash.plan ?? '';
  const expiresAt = fromSeconds(hash.expires_at);
  const secrets = toSecrets(hash);
  const isReadable = secrets.length > 0 && isPlanName(plan) && (expiresAt !== undefined || !hash.expires_at);
  const record = {
    plan,
    name: hash.name ?? '',
    createdAt: fromSeconds(hash.created_at) ?? 0,
    secrets,
    expiresAt,
    disabled: !['', '0'].includes(hash.disabled ?? ''),
    minute: parseLimit(hash.minute ?? ''),
    day: parseLimit(hash.day ?? ''),
  };
  return { id, isReadable, record, ...toState(hash) };
}

/** The results of decisions, read as decide.lua does. The queue is left out: operators do not need it. */
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
    used: toUsed(hash),
    usage: { minutes: toMarks(hash.usage_minutes), days: toMarks(hash.usage_days) },
    banReason: banReasonUntil === undefined ? undefined : { text: hash.ban_reason ?? '', until: banReasonUntil },
  };
}

/** Malformed marks, for example after an edit by hand, are left out. */
function toMarks(text = ''): Mark[] {
  const marks = text.matchAll(/(?<!\S)(\d{1,8}):(\d{1,16}):(\d{1,16})(?!\S)/g);
  return [...marks].map(([, at, admitted, refused]) => ({
    at: Number(at),
    admitted: Number(admitted),
    refused: Number(refused),
  }));
}

const toCount = (text = ''): number => (/^\d{1,15}$/.test(text) ? Number(text) : 0);

/** A missing or unreadable level counts as full. */
function toLevel(text = '', window: number): Level {
  const [, tokens, decimals = ''] = /^(\d{1,10})\.?(\d{0,12})$/.exec(text) ?? [];
  if (tokens === undefined) return full(MAX_LIMIT);
  return { tokens: Number(tokens), fraction: Math.floor(Number(`0.${decimals}`) * window + 0.5) };
}

export function toSeconds(time: number | undefined): string | undefined {
  return time === undefined ? undefined : (time / 1e6).toFixed(6);
}

export function fromSeconds(text: string | undefined): number | undefined {
  return text === undefined || !/^\d{1,10}(?:\.\d*)?$/.test(text) ? undefined : Math.round(Number(text) * 1e6);
}
