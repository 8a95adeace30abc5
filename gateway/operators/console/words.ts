import { PLAN_FIELDS, type PlanField, whenAbsent } from '../../limiter/plans.ts';
import type { BanView } from '../api/answers.ts';
import { banInWords, inLargestUnit } from '../clients.ts';

/** Formats names, numbers and times for the reader. */

const lowerFirst = (text: string): string => text.charAt(0).toLowerCase() + text.slice(1);
export const upperFirst = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

export const planInWords = upperFirst;

/** Returns the label of a plan's field. */
export const fieldInWords = (field: string): string => PLAN_FIELDS[field as PlanField]?.label ?? field;

/** Describes a field of the plan table, such as `free.minute`. */
export function tableFieldInWords(name: string): string {
  const [plan = '', field] = name.split('.');
  return field === undefined ? name : `${planInWords(plan)}, ${lowerFirst(fieldInWords(field))}`;
}

/**
 * Formats a value, with thousands separators.
 * @param name the field of a plan or of the plan table. While its value is absent, another one may be in force
 */
export const valueInWords = (value: string | number | undefined, name = ''): string =>
  value === undefined || value === ''
    ? inForce(name.split('.').at(-1) ?? '')
    : /^\d+$/.test(String(value))
      ? number(Number(value))
      : String(value);

const inForce = (field: string): string =>
  (Object.hasOwn(PLAN_FIELDS, field) && whenAbsent(field as PlanField)) || 'none';

const NUMBER = new Intl.NumberFormat('en-US');
/** Formats a number; an unknown one is a dash. */
export const number = (value: number | null): string => (value === null ? '–' : NUMBER.format(value));

export const counted = (value: number, one: string, many = `${one}s`): string =>
  `${number(value)} ${value === 1 ? one : many}`;

export const percent = (part: number, whole: number): string =>
  whole === 0 ? '0 %' : `${((part / whole) * 100).toFixed(part > 0 && part / whole < 0.1 ? 1 : 0)} %`;

/** Formats milliseconds with a useful number of digits. */
export function milliseconds(ms: number | null): string {
  if (ms === null) return '–';
  if (ms > 0 && ms < 0.05) return '< 0.1 ms';
  return ms >= 1_000 ? `${(ms / 1_000).toFixed(1)} s` : `${ms >= 10 ? Math.round(ms) : ms.toFixed(1)} ms`;
}

const HOUR_AND_MINUTE = { hour: '2-digit', minute: '2-digit' } as const;
const CLOCK = new Intl.DateTimeFormat('en-GB', HOUR_AND_MINUTE);
const DAY_AND_CLOCK = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', ...HOUR_AND_MINUTE });
const TO_SECOND = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const EXACT = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

const formatted = (text: string, today: Intl.DateTimeFormat, otherwise: Intl.DateTimeFormat): string => {
  const at = new Date(text);
  return (at.toDateString() === new Date().toDateString() ? today : otherwise).format(at);
};

/** Formats a local time, with the date unless it is today. */
export const clock = (text: string): string => formatted(text, CLOCK, DAY_AND_CLOCK);

/** Formats a time to the second, with the date unless it is today. */
export const clockToSecond = (text: string): string => formatted(text, TO_SECOND, EXACT);

/** Formats a time to the second, with the date. */
export const exactTime = (text: string): string => EXACT.format(new Date(text));

const RELATIVE = new Intl.RelativeTimeFormat('en-US');

/** Describes how long ago a time was, or how far ahead it is. */
export function relative(text: string): string {
  const seconds = (Date.parse(text) - Date.now()) / 1_000;
  if (Math.abs(seconds) < 5) return 'now';
  const { count, name } = inLargestUnit(Math.abs(seconds));
  return RELATIVE.format(count * Math.sign(seconds), name);
}

/** Describes an active ban, starting with its expiry, as the command line does. */
export const runningBan = (ban: BanView): string => `until ${banInWords(ban, clock(ban.bannedUntil ?? ''))}`;

/**
 * Converts a local time from an input field to ISO 8601; `toLocal` converts it back, to the second. In UTC, the year may
 * have five digits. Such times are moved to one that the gateway can read, and refuse by its own rule.
 */
export const toIso = (local: string | undefined): string | undefined =>
  local && new Date(Math.min(Date.parse(local), Date.UTC(9999, 0))).toISOString();
export function toLocal(iso: string | undefined): string {
  if (iso === undefined) return '';
  const at = new Date(iso);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19).replace(/:00$/, '');
}
