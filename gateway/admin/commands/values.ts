import { InvalidArgumentError } from 'commander';
import { parseLimit } from '../../access/plans.ts';

/** Values as an operator types them. */

/** @throws {InvalidArgumentError} for what is no limit */
export function limit(text: string): number {
  const value = parseLimit(text);
  if (value === undefined) throw new InvalidArgumentError('It must be a whole number from 1 to 1000000000.');
  return value;
}

/** A limit, or `none` for no limit of its own; not null, which commander makes an empty text of. */
export const limitOrNone = (text: string): number | 'none' => (text === 'none' ? text : limit(text));

/** What is sent for it: null takes a limit away, and what was not typed is left out. */
export const orNull = (value: number | 'none' | undefined): number | null | undefined =>
  value === 'none' ? null : value;

const UNITS = { s: 1, m: 60, h: 3_600, d: 86_400 } as const;

/** A length of time in seconds, typed as 90, 90s, 15m, 24h or 7d. @throws {InvalidArgumentError} for anything else */
export function seconds(text: string): number {
  const [, digits, unit = 's'] = /^(\d{1,9})([smhd]?)$/.exec(text) ?? [];
  if (digits === undefined) throw new InvalidArgumentError('It must be a length of time, as 90s, 15m, 24h or 7d.');
  return Number(digits) * UNITS[(unit || 's') as keyof typeof UNITS];
}
