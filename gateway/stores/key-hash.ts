import { hash as digestOf } from 'node:crypto';
import { z } from 'zod';
import { must } from '../../shared/schemas/must.ts';
import {
  isDecidable,
  MAX_SECRETS,
  readNetworks,
  readScope,
  SCOPES,
  type Secret,
  type UnreadablePart,
} from '../limiter/credential.ts';
import { DAYS_KEPT, type KeyEntry, type KeyRecord, type KeyState, MAX_KEY_NAME_LENGTH } from '../limiter/key-record.ts';
import { describeNetwork, isNetwork, parseNetwork } from '../limiter/networks.ts';
import { isPlanName, parseLimit } from '../limiter/plans.ts';
import { readTags, writeTags } from '../limiter/tags.ts';
import type { FieldChange } from './audit.ts';
import { type RejectedField, readBan, readState, readUsed, rejectedState, USED, writeUsed } from './key-state.ts';
import { type FieldChanges, type Fields, readTime, withChanges, writeTime } from './storage.ts';

/**
 * The fields of an API key, as stored in its hash in Redis and in a line of a backup. Times are decimal Unix seconds,
 * and other values are as people type them. The reading functions accept any hash, because people edit hashes.
 */

/** The members of the record, and the field for each. */
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

const isLimit = (text: string): boolean => parseLimit(text) !== undefined;

/** Fields that people edit by hand, and that can therefore hold anything. Each has a check. */
const CHECKS = {
  plan: isPlanName,
  minute: isLimit,
  day: isLimit,
  expires_at: (text: string) => text === '' || readTime(text) !== undefined,
  disabled: () => true,
  name: (text: string) => isName(text),
  tags: (text: string) => readTags(text) !== undefined,
};

type Editable = keyof typeof CHECKS;
const EDITABLE = Object.keys(CHECKS) as Editable[];

/**
 * The editable fields as a gateway last left them, and a digest of the secrets. A difference shows a manual edit.
 * decide.lua also uses these copies in place of bad values. The digest also reveals concurrent changes to the secrets.
 */
const KEPT = 'ok_';
const KEPT_SECRETS = `${KEPT}secrets`;
export const KEPT_FIELDS = [...EDITABLE.map((field) => KEPT + field), KEPT_SECRETS];

/** How long the usage of a revoked key is kept, in seconds: as long as that of any other key. */
export const REVOKED_KEPT_SECONDS = DAYS_KEPT * 86_400;

/** The fields that stay when a key is revoked. */
export const REVOKED_FIELDS = ['name', 'plan', 'tags', 'created_at', 'left', 'admitted', 'refused', 'usage_days'];

/** The fields of a new key. */
export const writeKey = (record: KeyRecord): Fields => withChanges({}, writeRecord(record));

/** Changes to a record, together with those to its kept copies. @param before the fields now in force */
export function withKept(changes: FieldChanges, before: Fields = {}): FieldChanges {
  const after = withChanges(before, changes);
  const kept = EDITABLE.map((field) => [KEPT + field, after[field]]);
  return { ...changes, ...Object.fromEntries(kept), [KEPT_SECRETS]: secretsDigest(after) };
}

/**
 * The fields in force: the last good value in place of an invalid one. A plan and limits that do not fit together are
 * invalid.
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
  const fields = bad.length === 0 ? hash : without(bad);
  const rejected: RejectedField[] = bad.map((field) => ({ field, value: hash[field] ?? '', kept: kept(field) }));
  const { until, isRejected } = readBan(hash);
  if (!isRejected) return { fields, rejected };
  const ban = until === 0 ? undefined : writeTime(until);
  rejected.push({ field: BAN, value: hash[BAN] ?? '', kept: ban });
  return { fields: withChanges(fields, { [BAN]: ban }), rejected };
}

/** The field with the end of a ban. Decisions write it, but people may too. */
const BAN = 'banned_until';

const OF_LIMITS = ['plan', 'minute', 'day'] as const satisfies readonly Editable[];

/** An enterprise key needs its own limits. */
export const hasLimits = ({ plan, minute, day }: { plan?: unknown; minute?: unknown; day?: unknown }): boolean =>
  plan !== 'enterprise' || (minute !== undefined && day !== undefined);

/** Whether no gateway has ever written the key. */
export const isTyped = (hash: Fields): boolean => KEPT_FIELDS.every((field) => hash[field] === undefined);

/** What was edited by hand since a gateway last wrote the record; undefined if that is unknown. */
export function editedFields(hash: Fields): FieldChange[] | undefined {
  if (hash[KEPT_SECRETS] === undefined && !isTyped(hash)) return undefined;
  const changes: FieldChange[] = EDITABLE.map((field) => ({ field, from: hash[KEPT + field], to: hash[field] }));
  const ban = inForce(hash).rejected.filter(({ field }) => field === BAN);
  changes.push(...ban.map(({ field, value, kept }) => ({ field, from: kept, to: value })));
  const edited = changes.filter(({ from, to }) => from !== to);
  return hash[KEPT_SECRETS] === secretsDigest(hash) ? edited : [...edited, { field: 'secrets', to: 'changed' }];
}

/** Why fields do not form a valid key, whether issued, typed by hand or restored; undefined if they do. */
export function faultIn(fields: Fields): string | undefined {
  const bad = EDITABLE.find((field) => !isValid(field, fields[field]));
  if (bad !== undefined) return `${bad} is not valid: ${JSON.stringify((fields[bad] ?? '').slice(0, 100))}.`;
  if (!hasLimits(fields)) return 'minute and day are missing: an enterprise key carries its own limits.';
  const secrets = readSecrets(fields);
  if (secrets.length === 0) return 'It has no secret.';
  if (secrets.length > MAX_SECRETS) return `It has more than ${MAX_SECRETS} secrets.`;
  if (secrets.some(({ unreadable }) => unreadable)) return 'One of its secrets cannot be read.';
  if (new Set(secrets.map(({ id }) => id)).size < secrets.length) return 'Two of its secrets have the same id.';
  return faultInCreation(fields);
}

function faultInCreation({ created_at: text }: Fields): string | undefined {
  const createdAt = readTime(text);
  if (createdAt === undefined) return 'created_at is not a time in Unix seconds.';
  // Lists are sorted by this time. The tolerance of a day allows for clocks that differ.
  return createdAt > (Date.now() + 86_400_000) * 1_000 ? 'created_at is in the future.' : undefined;
}

/** The fields of a key for a backup: those in force, which a restore accepts. */
export function fieldsForBackup(stored: Fields): Fields {
  const { fields } = inForce(stored);
  return faultInCreation(fields) === undefined ? fields : { ...fields, created_at: '0.000000' };
}

/** A missing field is valid unless it is the plan. */
const isValid = (field: Editable, text: string | undefined): boolean =>
  text === undefined ? field !== 'plan' : CHECKS[field](text);

/** Undefined if the fields do not form a key. */
export function readKey(fields: Fields): { record: KeyRecord; state: KeyState } | undefined {
  const record = readRecord(fields);
  return record && { record, state: readState(fields) };
}

/**
 * Writes the members as fields.
 * @param before the current secrets. Those missing from the record are removed
 * @param stored the current fields
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
  const used = Object.entries(readUsed(stored[USED])).filter(([id]) => !gone.some((secret) => secret.id === id));
  return {
    ...fields,
    ...Object.fromEntries(written.map((secret) => [SECRET + secret.digest, writeSecret(secret, createdAt)])),
    ...Object.fromEntries(gone.map(({ digest }) => [SECRET + digest, undefined])),
    ...(gone.length > 0 && { [USED]: writeUsed(Object.fromEntries(used)) }),
  };
}

/** Whether a hash, even an invalid one, shows that the key has no secret of this digest. decide.lua does the same. */
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
    rejected: [...rejected, ...rejectedState(stored)],
    record,
    isWhole: record.secrets.some(isDecidable) && isPlanName(record.plan) && hasExpiry,
  };
}

/** The fields from which a record was read. A change compares them with the current ones. */
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

/** Each secret has a field named by its digest, so that a decision reads it with everything else. */
const SECRET = 'secret:';

/** A secret that may have been replaced. The rotation then sets its expiry, and `own` keeps its original expiry. */
export interface StoredSecret extends Secret {
  readonly own?: Pick<Secret, 'expiresAt'> | undefined;
}

/** When a secret expires, or would have expired without the rotation. */
export const ownExpiry = ({ expiresAt, own = { expiresAt } }: StoredSecret): number | undefined => own.expiresAt;

export const MAX_NETWORKS = 20;

/** Whether a secret allows less than before in some respect, and more in no respect. */
export function isNarrower(secret: Secret, before: Secret | undefined): boolean {
  if (before === undefined) return false;
  const ends = (secret.expiresAt ?? Infinity) - (before.expiresAt ?? Infinity) || 0;
  const isBound = secret.networks.length > 0 && before.networks.length === 0;
  const isWider =
    ends > 0 ||
    secret.scope.some((scope) => !before.scope.includes(scope)) ||
    (!isBound && secret.networks.some((network) => !before.networks.includes(network))) ||
    (secret.networks.length === 0 && before.networks.length > 0);
  const isLess = ends < 0 || secret.scope.length < before.scope.length;
  return !isWider && (isLess || isBound || secret.networks.length < before.networks.length);
}

const isGivenNetwork = (text: string): boolean => isNetwork(text) && parseNetwork(describeNetwork(text)) === text;

const secretsDigest = (hash: Fields): string => {
  const secrets = Object.entries(hash).filter(([field]) => field.startsWith(SECRET));
  return digestOf('sha256', JSON.stringify(secrets.sort(([a], [b]) => (a < b ? -1 : 1))), 'base64url').slice(0, 8);
};

/**
 * In decide.lua's format: id, expiry, scope, networks, creation (followed by `/` and the original expiry of a replaced
 * secret), name. The creation time is `-` for a secret as old as its key: with fewer bytes, more keys keep Redis'
 * compact encoding.
 * @param keyCreatedAt the key's field `created_at`
 */
function writeSecret(
  { id, expiresAt, scope, networks, createdAt, name, own }: StoredSecret,
  keyCreatedAt: string | undefined,
): string {
  const began = writeTime(createdAt);
  const created = `${began === keyCreatedAt ? '-' : began}${own === undefined ? '' : `/${writeTime(own.expiresAt) ?? '-'}`}`;
  return [id, writeTime(expiresAt) ?? '-', scope.join(','), networks.join(',') || '-', created, name].join(' ');
}

function readSecret(digest: string, text: string, keyCreatedAt: string | undefined): StoredSecret {
  const [, id, end = '', scope = '', networks = '', created = '', ownEnd, name = ''] =
    /^(\w{1,32}) (\S+) (\S+) (\S+) ([^\s/]*)(\/\S*)? ?(.*)$/s.exec(text) ?? [];
  const expiresAt = readTime(end);
  const bounds = { scope: readScope(scope), networks: readNetworks(networks) };
  const ownTime = readTime(ownEnd?.slice(1));
  const own = ownTime === undefined && ownEnd !== '/-' ? undefined : { expiresAt: ownTime };
  const isGood: Record<UnreadablePart, boolean> = {
    digest: /^[\w-]{43}$/.test(digest),
    name: isName(name),
    scope: scope.split(',').every((one) => SCOPES.some((known) => known === one)),
    networks: networks !== '' && bounds.networks.length <= MAX_NETWORKS && bounds.networks.every(isGivenNetwork),
    expiresAt: end === '-' || expiresAt !== undefined,
    createdAt: /^(?:-|[\d.]*)$/.test(created) && (own === undefined) === (ownEnd === undefined),
  };
  const bad = (Object.keys(isGood) as UnreadablePart[]).filter((part) => !isGood[part]);
  const unreadable = bad.length === 0 ? undefined : bad;
  const createdAt = readTime(created === '-' ? keyCreatedAt : created) ?? 0;
  const ownId = id ?? digestOf('sha256', digest + text, 'hex').slice(0, 8);
  return { id: ownId, digest, name, createdAt, expiresAt, own, unreadable, ...bounds };
}

/** All secrets among the fields, including those that operators could not have created. */
export function readSecrets(hash: Fields): StoredSecret[] {
  const fields = Object.entries(hash).filter(([field]) => field.startsWith(SECRET));
  const secrets = fields.map(([field, text]) => readSecret(field.slice(SECRET.length), text, hash.created_at));
  return secrets.sort((a, b) => a.createdAt - b.createdAt);
}

/**
 * One line of text from an operator, safe for a log, a table and a terminal: it has a visible character and none that
 * controls a terminal or the direction of text. Its length is in Unicode code points.
 */
export const line = (maxCharacters: number) =>
  z
    .string({ error: must('be a string') })
    .regex(/^(?=.*\S)[^\p{Cc}\u202a-\u202e\u2066-\u2069]+$/u, 'must not be empty or contain control characters')
    .max(maxCharacters, `must have at most ${maxCharacters} characters`)
    .refine((text) => text.isWellFormed(), 'must be well-formed Unicode');

/** The name of a key or a secret, whether it is issued, typed by hand or restored. */
export const keyName = line(MAX_KEY_NAME_LENGTH);

/** Whether a string can be the name of a key or a secret. */
const isName = (text: string): boolean => keyName.safeParse(text).success;
