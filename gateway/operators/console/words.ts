import { banInWords, inLargestUnit, type RunningBan } from '../clients.ts';
import { PLAN_FIELDS, type PlanField } from './plan-fields.ts';

/** Translates the gateway's names into words. */

const STATES: Readonly<Record<string, string>> = {
  active: 'Active',
  banned: 'Banned',
  disabled: 'Disabled',
  expired: 'Expired',
  unreadable: 'Unreadable',
};

export const stateInWords = (state: string): string => STATES[state] ?? state;

export const lowerFirst = (text: string): string => text.charAt(0).toLowerCase() + text.slice(1);
export const upperFirst = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

export const planInWords = upperFirst;

/** Names a field of a plan as its form does. */
export const fieldInWords = (field: string): string => PLAN_FIELDS[field as PlanField]?.label ?? field;

/** Names a field of the plan table, such as `free.minute`. */
export function tableFieldInWords(name: string): string {
  const [plan = '', field] = name.split('.');
  return field === undefined ? name : `${planInWords(plan)}, ${lowerFirst(fieldInWords(field))}`;
}

/** Formats a value of a plan, with thousands separators. */
export const valueInWords = (value: string | number | undefined): string =>
  value === undefined || value === '' ? 'none' : /^\d+$/.test(String(value)) ? number(Number(value)) : String(value);

const NUMBER = new Intl.NumberFormat('en-US');
export const number = (value: number): string => NUMBER.format(value);

export const counted = (value: number, one: string, many = `${one}s`): string =>
  `${number(value)} ${value === 1 ? one : many}`;

export const percent = (part: number, whole: number): string =>
  whole === 0 ? '0 %' : `${((part / whole) * 100).toFixed(part > 0 && part / whole < 0.1 ? 1 : 0)} %`;

/** Formats milliseconds, with as many digits as are useful. */
export function milliseconds(ms: number | null): string {
  if (ms === null) return '–';
  if (ms > 0 && ms < 0.05) return '< 0.1 ms';
  return ms >= 1_000 ? `${(ms / 1_000).toFixed(1)} s` : `${ms >= 10 ? Math.round(ms) : ms.toFixed(1)} ms`;
}

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const DAY_AND_CLOCK = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
});
const TO_SECOND = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const EXACT = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

const isToday = (at: Date, now: Date): boolean => at.toDateString() === now.toDateString();

/** Formats a local time, with the date unless it is today. */
export function clock(text: string, now = new Date()): string {
  const at = new Date(text);
  return (isToday(at, now) ? CLOCK : DAY_AND_CLOCK).format(at);
}

/** Formats a time to the second, with the date unless it is today. */
export function clockToSecond(text: string, now = new Date()): string {
  const at = new Date(text);
  return (isToday(at, now) ? TO_SECOND : EXACT).format(at);
}

/** Formats a time to the second, with the date. */
export const exactTime = (text: string): string => EXACT.format(new Date(text));

/** Formats a duration in its largest unit, such as `5 minutes`. */
export function lengthInWords(seconds: number): string {
  const { count, name } = inLargestUnit(seconds);
  return counted(count, name);
}

/** Describes how long ago a time was, or how far ahead it is. */
export function relative(text: string, now = Date.now()): string {
  const seconds = (now - Date.parse(text)) / 1_000;
  if (Math.abs(seconds) < 5) return 'now';
  return seconds > 0 ? `${lengthInWords(seconds)} ago` : `in ${lengthInWords(-seconds)}`;
}

/** Describes a running ban from its end on, as the command line does. */
export const runningBan = (ban: RunningBan): string => `until ${banInWords(ban, clock(ban.bannedUntil ?? ''))}`;
export { tooSmallInWords } from '../clients.ts';
