import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import { type PlanField, ruleOf } from '../../limiter/plans.ts';
import {
  MAX_TAGS,
  splitTags,
  TAG_NAME,
  TAG_NAME_RULE,
  TAG_VALUE,
  TAG_VALUE_RULE,
  type TagChanges,
  type Tags,
} from '../../limiter/tags.ts';
import { type KeyCursor, readCursor } from '../../stores/storage.ts';

/** The schemas of values that several operations of the admin API read from bodies and queries. */

export const time = z.iso.datetime({ offset: true, error: must('be an RFC 3339 time like 2026-11-25T14:05:00Z') });

/** Refuses a member named `__proto__`, which Zod's records drop silently. @param fault the message after the name */
export const refusingProto = <S extends z.ZodType>(record: S, fault: string) =>
  z.preprocess((given, context) => {
    if (typeof given === 'object' && given !== null && Object.hasOwn(given, '__proto__'))
      context.addIssue({ code: 'custom', path: ['__proto__'], message: fault });
    return given;
  }, record);

const NO_TAG_NAME = `is not a tag name: a tag name has ${TAG_NAME_RULE}`;

const tagValue = (what: string) =>
  z.string({ error: must(`be ${what}`) }).regex(TAG_VALUE, `must have ${TAG_VALUE_RULE}`);

const byTagName = <V extends z.ZodType>(value: V, what: string) =>
  z.record(z.string().regex(TAG_NAME), value, {
    error: ({ code }) => (code === 'invalid_key' ? NO_TAG_NAME : `must be an object of ${what}`),
  });

const FEW_TAGS = `must have at most ${MAX_TAGS} entries`;

export const tags = refusingProto(
  byTagName(tagValue('a string'), 'strings').refine((given) => Object.keys(given).length <= MAX_TAGS, FEW_TAGS),
  NO_TAG_NAME,
);

/** Changes to single tags. null removes a tag. */
export const tagChanges = refusingProto(
  byTagName(tagValue('a string or null').nullable(), 'strings and nulls'),
  NO_TAG_NAME,
);

/** @throws {HttpError} 400 if these would be too many tags */
export function withTagChanges(before: Tags = {}, changes: TagChanges): Tags {
  const after = Object.entries({ ...before, ...changes }).filter(([, value]) => value !== null);
  if (after.length > MAX_TAGS) throw new HttpError('invalid_request', `tags ${FEW_TAGS}.`);
  return Object.fromEntries(after) as Tags;
}

export const integer = (least: number, most: number, what = 'a whole number') => {
  const error = must(`be ${what} from ${least} to ${most}`);
  return z.int({ error }).min(least, { error }).max(most, { error });
};

export const planNumber = (field: PlanField) => integer(ruleOf(field).least, ruleOf(field).most);

export const limitValue = planNumber('minute');

export function wholeNumber(min: number, max: number) {
  const error = must(`be a whole number from ${min} to ${max}`);
  return z
    .string({ error })
    .regex(/^\d{1,9}$/, { error })
    .transform(Number)
    .pipe(integer(min, max));
}

const PLACE = 'must be the number of keys to skip, up to 999999999, or the `next` of a previous response';

/** The place in the list of keys, newest first, from which to continue. */
export const offset = z
  .string(PLACE)
  .transform((text, context): number | KeyCursor => {
    const place = /^\d{1,9}$/.test(text) ? Number(text) : readCursor(text);
    if (place === undefined) context.addIssue(PLACE);
    return place ?? 0;
  })
  .meta({ type: ['integer', 'string'] })
  .default(0);

export const choice = <const T extends readonly string[]>(options: T) =>
  z.enum(options, { error: must(`be one of ${options.join(', ')}`) });

/** The position from which to continue through the keys: the `next` of a previous response. */
export const after = cursor((text) => readCursor(text) !== undefined);

export const cursorIn = (text = '') => readCursor(text);

/** The `next` of a previous response. */
export function cursor(isGiven: (text: string) => boolean) {
  const error = must('be the `next` of a previous response');
  return z.string({ error }).refine(isGiven, { error }).optional();
}

export const word = z.string({ error: must('be given only once') }).optional();

const LONGEST_TEXT = 200;
const TEXT = must(`be given only once, with at most ${LONGEST_TEXT} characters`);

/** An empty string counts as absent. */
export const text = z.string({ error: TEXT }).max(LONGEST_TEXT, { error: TEXT }).optional();

/** The bounds of a search, each an RFC 3339 time. */
export const period = { from: time.optional(), to: time.optional() };

/** @throws {HttpError} 400 if `from` is after `to` */
export function checkOrder(from: number | undefined, to: number | undefined): void {
  if (from !== undefined && to !== undefined && from > to)
    throw new HttpError('invalid_parameter', 'from must not be after to.');
}

/** The bounds in Unix ms. @throws {HttpError} 400 if `from` is after `to` */
export function periodIn(given: { readonly from?: string | undefined; readonly to?: string | undefined }) {
  const from = given.from === undefined ? undefined : Date.parse(given.from);
  const to = given.to === undefined ? undefined : Date.parse(given.to);
  checkOrder(from, to);
  return { from, to };
}

const TAG = must('be the name and value of a tag, such as customer=acme');

/** Tags that a key must have: one per parameter, or several in one, such as `customer:acme,env:prod`. */
export const tag = z
  .array(z.string().refine((text) => !splitTags(text).includes(undefined), { error: TAG }))
  .default([]);

export const tagsIn = (given: readonly string[]): [name: string, value: string][] =>
  given.flatMap(splitTags).filter((one) => one !== undefined);
