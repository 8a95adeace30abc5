import type { DecisionReport } from '../api/answers.ts';
import { PLAN_FIELDS, type PlanField } from './plan-fields.ts';

/** The gateway's names in words for people. */

const STATES: Readonly<Record<string, string>> = {
  active: 'Active',
  banned: 'Banned',
  disabled: 'Disabled',
  expired: 'Ended',
  unreadable: 'Unreadable',
};

export const stateInWords = (state: string): string => STATES[state] ?? state;

export const planInWords = (plan: string): string => plan.charAt(0).toUpperCase() + plan.slice(1);

/** A field of a plan as in its form. */
export const fieldInWords = (field: string): string => PLAN_FIELDS[field as PlanField]?.label ?? field;

/** A field of the plan table, such as `free.minute`. */
export function tableFieldInWords(name: string): string {
  const [plan = '', field] = name.split('.');
  return field === undefined ? name : `${planInWords(plan)}, ${lowerFirst(fieldInWords(field))}`;
}

/** A value of a plan, with separators for thousands. */
export const valueInWords = (value: string | number | undefined): string =>
  value === undefined || value === '' ? 'none' : /^\d+$/.test(String(value)) ? number(Number(value)) : String(value);

export const lowerFirst = (text: string): string => text.charAt(0).toLowerCase() + text.slice(1);
export const upperFirst = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

const NUMBER = new Intl.NumberFormat('en-US');
export const number = (value: number): string => NUMBER.format(value);

export const counted = (value: number, one: string, many = `${one}s`): string =>
  `${number(value)} ${value === 1 ? one : many}`;

export const percent = (part: number, whole: number): string =>
  whole === 0 ? '0 %' : `${((part / whole) * 100).toFixed(part > 0 && part / whole < 0.1 ? 1 : 0)} %`;

/** Milliseconds, with as many digits as help. */
export const milliseconds = (ms: number | null): string =>
  ms === null ? '–' : ms >= 1_000 ? `${(ms / 1_000).toFixed(1)} s` : `${ms >= 10 ? Math.round(ms) : ms.toFixed(1)} ms`;

const OUTCOMES: Readonly<Record<string, string>> = {
  admitted: 'Admitted',
  refused: 'Refused',
  banned: 'Banned',
  forbidden: 'Not in scope',
  disabled: 'Key disabled',
  expired: 'Key ended',
  elsewhere: 'Other network',
};

export const outcomeInWords = (outcome: string): string => OUTCOMES[outcome] ?? outcome;

/** Why a decision was taken, with the numbers that it was taken on. */
export function reasonOf(decision: DecisionReport): string {
  const { outcome, buckets, refusedBy = [], bannedUntil, shadow, mode } = decision;
  const where = mode === 'local' ? ' Decided in the gateway, while Redis was away.' : '';
  return `${sentence()}${where}`;

  function sentence(): string {
    if (outcome === 'banned') return `The key is banned until ${clock(bannedUntil ?? '')}.`;
    if (outcome === 'forbidden') return 'The scope of the secret does not allow this operation.';
    if (outcome === 'disabled') return 'The key is disabled.';
    if (outcome === 'expired') return 'The key, or its secret, has ended.';
    if (outcome === 'elsewhere') return 'The address is in none of the networks of the secret.';
    if (buckets === undefined) return '';
    const { minute, day } = buckets;
    if (shadow !== undefined) return 'The limit was reached, but the plan is in shadow mode and refuses nothing.';
    if (outcome === 'admitted')
      return `${left(minute)} of ${number(minute.limit)} left this minute, ${left(day)} of ${number(day.limit)} this day.`;
    const empty = refusedBy.map((bucket) =>
      bucket === 'day' ? `the day’s limit of ${number(day.limit)}` : `the minute’s limit of ${number(minute.limit)}`,
    );
    return empty.length === 0 ? 'Others wait before it.' : `No request left of ${empty.join(' and ')}.`;
  }
}

const left = ({ after }: { readonly after: number }): string => number(Math.floor(after));

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const DAY_AND_CLOCK = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
});
const EXACT = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

const isToday = (at: Date, now: Date): boolean => at.toDateString() === now.toDateString();

/** A local time, with its date unless that is today. */
export function clock(text: string, now = new Date()): string {
  const at = new Date(text);
  return (isToday(at, now) ? CLOCK : DAY_AND_CLOCK).format(at);
}

/** To the second, with the date. */
export const exactTime = (text: string): string => EXACT.format(new Date(text));

const UNITS = [
  [86_400, 'day'],
  [3_600, 'hour'],
  [60, 'minute'],
  [1, 'second'],
] as const;

/** A length in its largest unit, such as `5 minutes`. */
export function lengthInWords(seconds: number): string {
  const [length, name] = UNITS.find(([unit]) => seconds >= unit) ?? [1, 'second'];
  return counted(Math.round(Math.max(0, seconds) / length), name);
}

/** How long ago, or in how long. */
export function relative(text: string, now = Date.now()): string {
  const seconds = (now - Date.parse(text)) / 1_000;
  if (Math.abs(seconds) < 5) return 'now';
  return seconds > 0 ? `${lengthInWords(seconds)} ago` : `in ${lengthInWords(-seconds)}`;
}
