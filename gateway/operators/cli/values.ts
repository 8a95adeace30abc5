import { InvalidArgumentError } from 'commander';
import { type PlanField, parseField, rangeOf, whenAbsent } from '../../limiter/plans.ts';
import { splitTag, TAG_NAME, TAG_NAME_RULE, TAG_VALUE_RULE, type Tags } from '../../limiter/tags.ts';
import { UNITS } from '../clients.ts';

/** Parses values that an operator types. */

/**
 * Reads a numeric plan field. `none`, which removes an optional one, is not converted to null, because Commander would
 * turn null into an empty string.
 * @throws {InvalidArgumentError}
 */
export const planNumber =
  (field: PlanField, isOptional = whenAbsent(field) !== undefined) =>
  (text: string): number | 'none' => {
    if (text === 'none' && isOptional) return text;
    const value = parseField(field, text);
    if (typeof value === 'number') return value;
    throw new InvalidArgumentError(`It must be ${rangeOf(field)}.`);
  };

/** @throws {InvalidArgumentError} for an invalid limit */
export const limit = planNumber('minute') as (text: string) => number;

/** A limit, or `none` to remove the key's own limit. */
export const limitOrNone = planNumber('minute', true);

/** The value to send. null removes a limit; undefined, for an option that was not given, changes nothing. */
export const orNull = (value: number | 'none' | undefined): number | null | undefined =>
  value === 'none' ? null : value;

const NO_TAG = 'It must be the name and value of a tag, such as customer=acme.';

/** Collects tags. @throws {InvalidArgumentError} for an invalid tag, or a second value for a name */
export function tag(text: string, before: Tags = {}): Tags {
  const pair = splitTag(text);
  if (pair === undefined)
    throw new InvalidArgumentError(`${NO_TAG} A name has ${TAG_NAME_RULE}. A value has ${TAG_VALUE_RULE}.`);
  const [name, value] = pair;
  if (Object.hasOwn(before, name))
    throw new InvalidArgumentError(`The tag ${name} is given twice. A key has one value per tag.`);
  return { ...before, [name]: value };
}

/** Collects tags that a key must have, as text for a query. @throws {InvalidArgumentError} as above */
export function wantedTag(text: string, before?: string): string {
  const pair = splitTag(text);
  if (pair === undefined) throw new InvalidArgumentError(NO_TAG);
  return [...(before === undefined ? [] : [before]), pair.join(':')].join(',');
}

export const TAG_FILTER = [
  '--tag <name=value>',
  'limit to keys with this tag; if repeated, keys must have all of the tags',
] as const;

/** Collects tag names. @throws {InvalidArgumentError} for anything else */
export function tagName(text: string, before: readonly string[] = []): string[] {
  if (!TAG_NAME.test(text)) throw new InvalidArgumentError(`It must be the name of a tag: ${TAG_NAME_RULE}.`);
  return [...before, text];
}

/** Reads a text that must not be empty. @throws {InvalidArgumentError} */
export function someText(text: string): string {
  if (text === '') throw new InvalidArgumentError('It must not be empty.');
  return text;
}

/** Reads a number of at least one. @throws {InvalidArgumentError} for anything else */
export function count(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('It must be a whole number of at least 1.');
  return Number(text);
}

/**
 * Reads a duration in seconds, typed as 90s, 15m, 24h or 7d. Only 0 needs no unit.
 * @throws {InvalidArgumentError} for anything else
 */
export function seconds(text: string): number {
  const [, digits, unit] = /^(\d{1,9})([smhd]?)$/.exec(text) ?? [];
  if (digits === undefined) throw new InvalidArgumentError('It must be a duration, such as 90s, 15m, 24h or 7d.');
  if (unit === '' && Number(digits) > 0)
    throw new InvalidArgumentError(`It needs a unit: ${digits}s, ${digits}m, ${digits}h or ${digits}d.`);
  return Number(digits) * (UNITS.find(({ name }) => name.startsWith(unit || 's'))?.unit ?? 1);
}

/** Formats a duration in the largest unit that divides it without a remainder, such as `36 hours`. */
export function lengthText(length: number): string {
  const { unit, name } = UNITS.find(({ unit }) => length % unit === 0) ?? UNITS[3];
  const count = length / unit;
  return `${count} ${name}${count === 1 ? '' : 's'}`;
}

/** Reads a time in RFC 3339, or as these commands print it. @throws {InvalidArgumentError} for anything else */
export function time(text: string): string {
  const at = new Date(text);
  if (Number.isNaN(at.getTime()) || !/^\d{4}-\d\d-\d\d[T ]/.test(text))
    throw new InvalidArgumentError('It must be a time, such as 2030-12-31T00:00:00Z.');
  return at.toISOString();
}
