import type { ActivityView } from '../api/answers.ts';
import { fieldInWords, tableFieldInWords, upperFirst, valueInWords } from './words.ts';

/** Entries of the audit log in words for people. */

type Action = ActivityView['action'];

/** By the names of the admin API. */
export const ACTIONS: Readonly<Record<Action, string>> = {
  'key.create': 'Key created',
  'key.change': 'Key changed',
  'key.reset': 'Limits reset',
  'key.rotate': 'Key rotated',
  'key.revoke': 'Key revoked',
  'key.restore': 'Key restored from a backup',
  'key.reindex': 'List of keys rebuilt',
  'backup.make': 'Backup made',
  'secret.create': 'Secret added',
  'secret.change': 'Secret changed',
  'secret.revoke': 'Secret revoked',
  'ban.set': 'Key banned',
  'ban.lift': 'Ban lifted',
  'plan.change': 'Plan changed',
  'token.create': 'Token created',
  'token.revoke': 'Token revoked',
};

/** A gateway of another version may have others. */
export const actionInWords = (action: string): string => ACTIONS[action as Action] ?? action;

const VIAS: Readonly<Record<ActivityView['via'], string>> = {
  console: 'Console',
  cli: 'CLI',
  api: 'API',
  'by hand': 'By hand, in Redis',
  gateway: 'Gateway',
};

export const viaInWords = (via: ActivityView['via']): string => VIAS[via] ?? via;

const FIELDS: Readonly<Record<string, string>> = {
  expiresAt: 'Expires',
  graceSeconds: 'Old secret works for seconds',
  bannedUntil: 'Banned until',
  seconds: 'Ban for seconds',
};

/** A field of a key, a secret, a ban or a token, or of the plan table, such as `free.minute`. */
export function recordedFieldInWords(field: string): string {
  if (field.includes('.')) return tableFieldInWords(field);
  return FIELDS[field] ?? upperFirst(fieldInWords(field));
}

const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;

/** Whether the value is a point in time. */
export const isTime = (value: string | undefined): value is string => value !== undefined && TIME.test(value);

const COUNTS: readonly string[] = ['minute', 'day', 'seconds', 'graceSeconds', 'keys'];

/** Every number in the plan table is a count, too. */
const isCount = (field: string): boolean => field.includes('.') || COUNTS.includes(field);

/** Only counts have separators: names and ids are texts, even those of digits only. */
export const recordedValueInWords = (field: string, value: string | undefined): string =>
  value === undefined || value === '' || isCount(field) ? valueInWords(value) : value;
