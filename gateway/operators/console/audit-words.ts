import { ACTION_WORDS, type Action, VIA_WORDS } from '../../stores/words.ts';
import type { ActivityView } from '../api/answers.ts';
import { fieldInWords, tableFieldInWords, upperFirst, valueInWords } from './words.ts';

/** Describes entries of the audit log in words. */

export { ACTION_WORDS };

/** A gateway of another version may have other actions and origins. */
export const actionInWords = (action: string): string => ACTION_WORDS[action as Action] ?? action;
export const viaInWords = (via: ActivityView['via']): string => VIA_WORDS[via] ?? via;

const FIELDS: Readonly<Record<string, string>> = {
  expiresAt: 'Expires',
  graceSeconds: 'Grace time in seconds',
  bannedUntil: 'Banned until',
  seconds: 'Ban time in seconds',
};

/** Names a field of a key, a secret, a ban or a token, or of the plan table, such as `free.minute`. */
export function recordedFieldInWords(field: string): string {
  if (field.includes('.')) return tableFieldInWords(field);
  return FIELDS[field] ?? upperFirst(fieldInWords(field));
}

const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;

/** Whether the value is a point in time. */
export const isTime = (value: string | undefined): value is string => value !== undefined && TIME.test(value);

const COUNTS: readonly string[] = ['minute', 'day', 'seconds', 'graceSeconds', 'keys'];

/** Every number in the plan table is also a count. */
const isCount = (field: string): boolean => field.includes('.') || COUNTS.includes(field);

/** Only counts have separators, because names and ids can consist of digits too. */
export const recordedValueInWords = (field: string, value: string | undefined): string =>
  value === undefined || value === '' || isCount(field) ? valueInWords(value) : value;
