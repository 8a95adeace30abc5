import { DAY, full, MINUTE } from '../limiter/bucket.ts';
import { isDecidable, MAX_SECRETS, type Secret } from '../limiter/credential.ts';
import type { KeyChange, KeyEntry, KeyRecord, KeyState, StoredLevel } from '../limiter/key-record.ts';
import { isPlanName, MAX_LIMIT, parseLimit } from '../limiter/plans.ts';
import { NO_REFUSALS, type Refusals } from '../limiter/refusals.ts';
import { readTags, writeTags } from '../limiter/tags.ts';
import type { FieldChange } from './audit.ts';
import { isName } from './line.ts';
import { readSecrets, SECRET, secretsDigest, writeSecret } from './secret-fields.ts';
import { type FieldChanges, type Fields, withChanges } from './storage.ts';
import { readTime, writeTime } from './stored-time.ts';
import { readMarks, readUsed, withoutSecrets, writeMarks, writeUsed } from './use-fields.ts';

/**
 * The fields of an API key, in its hash in Redis and in a line of a backup. Times are decimal Unix seconds, and other
 * values are as people type them. Functions that read never fail, because people edit hashes.
 */

/** A list of secrets' ids, each with the last use. */
const USED = 'used';

/** The other fields of the record, and the member for each. */
const RECORD = {
  plan: 'plan',
  name: 'name',
  createdAt: 'created_at',
  expiresAt: 'expires_at',
  disabled: 'disabled',
  minute: 'minute',
  day: 'day',
  tags: 'tags',
} as const satisfies Record<Exclude<keyof KeyRecord, 'secrets'>, string>;

type Member = keyof typeof RECORD;

/** Fields that people edit by hand and that can therefore hold anything. */
const EDITABLE = ['plan', 'minute', 'day', 'expires_at', 'disabled', 'name', 'tags'] as const;

type Editable = (typeof EDITABLE)[number];

/**
 * The editable fields as a gateway last left them, and a digest of the secrets. A difference shows an edit by hand.
 * decide.lua also uses these copies in place of bad values. The digest also reveals concurrent changes of the secrets.
 */
const KEPT = 'ok_';
const KEPT_SECRETS = `${KEPT}secrets`;
export const KEPT_FIELDS = [...EDITABLE.map((field) => KEPT + field), KEPT_SECRETS];

/** The fields that stay when a key is revoked. */
export const REVOKED_FIELDS = ['name', 'plan', 'tags', 'created_at', 'left', 'admitted', 'refused', 'usage_days'];

/** The fields of a key. Before its first decision a key has no state. */
export const writeKey = (record: KeyRecord, state?: KeyState): Fields =>
  withChanges({}, { ...writeRecord(record), ...(state && writeStateChanges(state)) });

/**
 * Changes of a record, together with the changes of its kept copies. @param before the present fields that are in force
 */
export function withKept(changes: FieldChanges, before: Fields = {}): FieldChanges {
  const after = withChanges(before, changes);
  const kept = EDITABLE.map((field) => [KEPT + field, after[field]]);
  return { ...changes, ...Object.fromEntries(kept), [KEPT_SECRETS]: secretsDigest(after) };
}

/** An invalid value in a stored key, and the value in force instead; undefined for none. */
export interface RejectedField {
  readonly field: string;
  readonly value: string;
  readonly kept: string | undefined;
}

/**
 * The fields in force: the last good value in place of an invalid one. A plan and limits that do not match are invalid
 * together.
 */
export function inForce(hash: Fields): { readonly fields: Fields; readonly rejected: readonly RejectedField[] } {
  const isUsable = (field: Editable) => hash[KEPT_SECRETS] !== undefined && isValid(field, hash[KEPT + field]);
  const kept = (field: Editable) => (isUsable(field) ? hash[KEPT + field] : undefined);
  // A key with invalid tags still works.
  const isReplaced = (field: Editable) => isUsable(field) || field === 'tags';
  const without = (bad: readonly Editable[]): Fields =>
    withChanges(hash, Object.fromEntries(bad.filter(isReplaced).map((field) => [field, kept(field)])));
  let bad = EDITABLE.filter((field) => !isValid(field, hash[field]));
  if (!hasLimits(without(bad))) {
    const edited = OF_LIMITS.filter((field) => hash[field] !== hash[KEPT + field]);
    const together = hasLimits(without([...bad, ...edited])) ? edited : (['plan'] as const);
    bad = [...new Set([...bad, ...together])];
  }
  return {
    fields: bad.length === 0 ? hash : without(bad),
    rejected: bad.map((field) => ({ field, value: hash[field] ?? '', kept: kept(field) })),
  };
}

const OF_LIMITS = ['plan', 'minute', 'day'] as const satisfies readonly Editable[];

/** An enterprise key needs its own limits. */
export const hasLimits = ({
  plan,
  minute,
  day,
}: { readonly [field in (typeof OF_LIMITS)[number]]?: unknown }): boolean =>
  plan !== 'enterprise' || (minute !== undefined && day !== undefined);

/** Whether no gateway has ever written the key. */
export const isTyped = (hash: Fields): boolean => KEPT_FIELDS.every((field) => hash[field] === undefined);

/** What was edited by hand since a gateway last wrote the record; undefined if that is unknown. */
export function editedFields(hash: Fields): FieldChange[] | undefined {
  if (hash[KEPT_SECRETS] === undefined && !isTyped(hash)) return undefined;
  const changes = EDITABLE.map((field) => ({ field, from: hash[KEPT + field], to: hash[field] }));
  const edited = changes.filter(({ from, to }) => from !== to);
  return hash[KEPT_SECRETS] === secretsDigest(hash) ? edited : [...edited, { field: 'secrets', to: 'changed' }];
}

/**
 * Why fields do not make a key; undefined if they do. This check applies to keys that are issued, typed by hand or
 * restored.
 */
export function faultIn(fields: Fields): string | undefined {
  const bad = EDITABLE.find((field) => !isValid(field, fields[field]));
  if (bad !== undefined) return `${bad} is not valid: ${JSON.stringify((fields[bad] ?? '').slice(0, 100))}.`;
  if (!hasLimits(fields)) return 'minute and day are missing: an enterprise key carries its own limits.';
  const secrets = readSecrets(fields);
  if (secrets.length === 0) return 'It has no secret.';
  if (secrets.length > MAX_SECRETS) return `It has more than ${MAX_SECRETS} secrets.`;
  if (secrets.some(({ unreadable }) => unreadable)) return 'One of its secrets cannot be read.';
  if (new Set(secrets.map(({ id }) => id)).size < secrets.length) return 'Two of its secrets have one id.';
  return faultInCreation(fields);
}

function faultInCreation({ created_at: text }: Fields): string | undefined {
  const createdAt = readTime(text);
  if (createdAt === undefined) return 'created_at is not a time in Unix seconds.';
  // Lists are sorted by this time. The tolerance of a day allows for clocks that differ.
  return createdAt > (Date.now() + 86_400_000) * 1_000 ? 'created_at lies in the future.' : undefined;
}

/** The fields of a key for a backup: those in force, which a restore accepts. */
export function fieldsForBackup(stored: Fields): Fields {
  const { fields } = inForce(stored);
  return faultInCreation(fields) === undefined ? fields : { ...fields, created_at: '0.000000' };
}

function isValid(field: Editable, text: string | undefined): boolean {
  if (field === 'plan') return isPlanName(text ?? '');
  if (text === undefined) return true;
  switch (field) {
    case 'minute':
    case 'day':
      return parseLimit(text) !== undefined;
    case 'expires_at':
      return text === '' || readTime(text) !== undefined;
    case 'name':
      return isName(text);
    case 'tags':
      return readTags(text) !== undefined;
    default:
      return true;
  }
}

/** Undefined if the fields do not make a key. */
export function readKey(fields: Fields): { record: KeyRecord; state: KeyState } | undefined {
  const record = readRecord(fields);
  return record && { record, state: readState(fields) };
}

/**
 * Writes the members as fields.
 * @param before the present secrets, of which those missing from the record are removed
 * @param stored the present fields
 */
export function writeRecord(
  { secrets, ...record }: Partial<KeyRecord>,
  before: readonly Secret[] = [],
  stored: Fields = {},
): FieldChanges {
  const members = Object.keys(record) as Member[];
  const fields = Object.fromEntries(members.map((member) => [RECORD[member], writeMember(member, record[member])]));
  if (secrets === undefined) return fields;
  const digests = new Set(secrets.map(({ digest }) => digest));
  const gone = before.filter(({ digest }) => !digests.has(digest));
  const written = secrets.filter((secret) => !before.includes(secret));
  const createdAt = fields.created_at ?? stored.created_at;
  return {
    ...fields,
    ...Object.fromEntries(written.map((secret) => [SECRET + secret.digest, writeSecret(secret, createdAt)])),
    ...Object.fromEntries(gone.map(({ digest }) => [SECRET + digest, undefined])),
    ...(gone.length > 0 && { [USED]: writeUsed(withoutSecrets(readUsed(stored[USED]), gone)) }),
  };
}

/** Whether an invalid hash at least shows that it has no such secret, as decide.lua sees it. */
export const isUnknownSecret = (digest: string, hash: Fields): boolean =>
  hash[SECRET + digest] === undefined && hash[KEPT_SECRETS] !== undefined;

/** The whole record; undefined for an invalid hash. A record may lack limits, which can be added later. */
export function readRecord(hash: Fields): KeyRecord | undefined {
  const { record, isWhole } = recordIn(hash);
  return isWhole && isPlanName(record.plan) ? { ...record, plan: record.plan } : undefined;
}

function recordIn(stored: Fields) {
  const { fields, rejected } = inForce(stored);
  const record: KeyEntry['record'] = {
    plan: fields.plan ?? '',
    name: fields.name ?? '',
    createdAt: readTime(fields.created_at) ?? 0,
    secrets: readSecrets(fields),
    expiresAt: readTime(fields.expires_at),
    disabled: !['', '0'].includes(fields.disabled ?? ''),
    minute: parseLimit(fields.minute ?? ''),
    day: parseLimit(fields.day ?? ''),
    tags: fields.tags === undefined ? undefined : readTags(fields.tags),
  };
  const hasExpiry = record.expiresAt !== undefined || !fields.expires_at;
  return {
    fields,
    rejected,
    record,
    isWhole: record.secrets.some(isDecidable) && isPlanName(record.plan) && hasExpiry,
  };
}

/** The fields from which a record was read. A change compares them with the present ones. */
export function recordFields(hash: Fields): FieldChanges {
  const secrets = Object.keys(hash).filter((field) => field.startsWith(SECRET));
  return Object.fromEntries([...Object.values(RECORD), KEPT_SECRETS, ...secrets].map((field) => [field, hash[field]]));
}

/** A hash as an entry for operators. A hash that decide.lua cannot use is shown as unreadable. */
export function readEntry(id: string, stored: Fields): KeyEntry {
  const { fields, rejected, record, isWhole } = recordIn(stored);
  return { id, isReadable: isWhole && hasLimits(record), record, rejected, ...readState(fields) };
}

/** What remains of a revoked key. */
export function readRevoked(id: string, hash: Fields): KeyEntry {
  const left = Object.entries(hash).filter(([field]) => REVOKED_FIELDS.includes(field));
  const entry = readEntry(id, Object.fromEntries(left));
  return { ...entry, rejected: [], asOf: undefined, usage: { ...entry.usage, minutes: [] }, isRevoked: true };
}

/**
 * Lifting a ban also clears the line, the strikes and the series. A reset also fills both buckets.
 * @param stored the present fields
 * @param now the time of a reset in microseconds
 */
export function writeBan(ban: KeyChange['ban'], stored: Fields = {}, now = 0): FieldChanges {
  if (ban === undefined) return {};
  if (typeof ban === 'object') {
    const until = writeTime(ban.until);
    return { banned_until: until, ban_reason: ban.text, ban_reason_until: until };
  }
  const gone = ['banned_until', 'bans', 'ban_reason', 'ban_reason_until', 'ban_decided', 'refusals'];
  const forgotten = Object.fromEntries(gone.map((field) => [field, undefined]));
  return ban === 'lift' ? forgotten : { ...forgotten, ...writeFull(stored, now) };
}

/**
 * Levels above every limit, which the next decision takes for full. The time of the last decision stays, because usage
 * is counted by it. Requests that a gateway admitted from levels of `reset_at` or before, and charges later, cost no
 * token.
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
    ban_decided: bannedUntil === 0 || banReason?.until === bannedUntil ? undefined : writeTime(bannedUntil),
  };
}

/** Reads the results of decisions as decide.lua does. */
function readState(hash: Fields): KeyState {
  const banReasonUntil = readTime(hash.ban_reason_until);
  const left = readLeft(hash.left);
  const { asOf } = left;
  const usage = {
    minutes: readMarks(hash.usage_minutes, asOf, MINUTE),
    days: readMarks(hash.usage_days, asOf, DAY),
  };
  return {
    ...left,
    refusals: readRefusals(hash.refusals),
    bannedUntil: readTime(hash.banned_until) ?? 0,
    bans: readCount(hash.bans),
    admitted: readCount(hash.admitted),
    refused: readCount(hash.refused),
    shadowed: readCount(hash.shadowed),
    used: readUsed(hash[USED]),
    usage,
    banReason: banReasonUntil === undefined ? undefined : { text: hash.ban_reason ?? '', until: banReasonUntil },
  };
}

function writeMember(member: Member, value: KeyRecord[Member]): string | undefined {
  switch (member) {
    case 'createdAt':
    case 'expiresAt':
      return writeTime(value as number | undefined);
    case 'disabled':
      return value ? '1' : undefined;
    case 'tags':
      return writeTags(value as KeyRecord['tags']);
    default:
      return value?.toString();
  }
}

/**
 * `1795132800.125000 1795132810.125000 0`: the last place in line, the end of the last strike, and since when there is
 * no room for another.
 */
function writeRefusals({ lineUntil, strikesUntil, fullAt }: Refusals): string | undefined {
  if (lineUntil + strikesUntil + fullAt === 0) return undefined;
  return [lineUntil, strikesUntil, fullAt].map((time) => (time === 0 ? '0' : writeTime(time))).join(' ');
}

function readRefusals(text: string | undefined): Refusals {
  if (text === undefined) return NO_REFUSALS;
  const [lineUntil = 0, strikesUntil = 0, fullAt = 0] = text.split(' ').map((time) => readTime(time));
  return { lineUntil, strikesUntil, fullAt };
}

const writeCount = (count: number): string | undefined => (count === 0 ? undefined : String(count));

const readCount = (text = ''): number => (/^\d{1,15}$/.test(text) ? Number(text) : 0);

/** The time of the levels, then both levels. */
const LEFT = /^(\S+) (-?\d+\.?\d*\/?\d*) (-?\d+\.?\d*\/?\d*)$/;
const LONGEST_LEFT = 100;
const LEVEL = /^(-?)(\d{1,10})\.?(\d{0,12})\/?(\d*)$/;

/** If the text is missing or unreadable, both buckets are full. */
function readLeft(text = ''): Pick<KeyState, 'asOf' | 'minute' | 'day'> {
  const [, time, minute, day] = (text.length <= LONGEST_LEFT && LEFT.exec(text)) || [];
  return { asOf: readTime(time), minute: readLevel(minute, MINUTE), day: readLevel(day, DAY) };
}

/** The decimals that distinguish any two fractions of a window in microseconds. */
const decimalsOf = (window: number): number => (window === DAY ? 11 : 8);

/** `59.50000000/60`: the tokens, which can be below zero, and the limit at that time. */
function writeLevel({ tokens, fraction, limit }: StoredLevel, window: number): string {
  const of = limit === undefined ? '' : `/${limit}`;
  if (fraction === 0) return `${tokens}${of}`;
  const [whole, part] = tokens < 0 ? [`-${-tokens - 1}`, window - fraction] : [tokens, fraction];
  const unit = 10 ** decimalsOf(window);
  return `${whole}.${String(Math.floor((part / window) * unit + 0.5)).padStart(decimalsOf(window), '0')}${of}`;
}

/** A level as decide.lua writes it. A missing or unreadable level counts as full. */
export function readLevel(text = '', window: number): StoredLevel {
  const [, sign, tokens, decimals = '', limit = ''] = LEVEL.exec(text) ?? [];
  if (tokens === undefined) return full(MAX_LIMIT);
  const fraction = Math.floor(Number(`0.${decimals}`) * window + 0.5);
  if (sign !== '-') return { tokens: Number(tokens), fraction, limit: parseLimit(limit) };
  const [whole, part] = fraction === 0 ? [Number(tokens), 0] : [Number(tokens) + 1, window - fraction];
  return { tokens: -whole, fraction: part, limit: parseLimit(limit) };
}
