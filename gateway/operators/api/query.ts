import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import { splitTags } from '../../limiter/tags.ts';
import { type KeyCursor, readCursor } from '../../stores/storage.ts';
import { redactSecrets } from '../access-token.ts';
import type { AdminRoute } from './operation.ts';
import { time, who } from './values.ts';

/** An operation reads only parameters of its schema, so that the OpenAPI document has all of them. */

type Parameters = Readonly<Record<string, z.ZodType>>;

/** The parameters of an operation. Each change may have an author and a reason. */
export const parametersOf = ({ method, needs, query }: Pick<AdminRoute, 'method' | 'needs' | 'query'>): Parameters => ({
  ...(query?.shape as Parameters | undefined),
  ...(method !== 'GET' && needs !== 'viewer' && who),
});

/** Refuses unknown parameters, because a misspelt filter would find everything. @throws {HttpError} 400 */
export function refuseUnknown(known: readonly string[], query: URLSearchParams): void {
  const unknown = [...query.keys()].find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const others = known.length === 0 ? 'It accepts none.' : `It accepts ${known.join(', ')}.`;
  const named = redactSecrets(unknown).slice(0, LONGEST_NAME);
  throw new HttpError('invalid_parameter', `${named} is not a parameter of this operation. ${others}`);
}

const LONGEST_NAME = 50;

/** Reads the parameters of a query. @throws {HttpError} 400 for a value that its schema refuses, or a repeated one */
export function readQuery<S extends z.ZodObject>(schema: S, query: URLSearchParams): z.output<S> {
  const given = Object.keys(schema.shape).map((name) => {
    const [text, ...more] = query.getAll(name);
    return [name, more.length === 0 && !isList(schema.shape[name]) ? text : query.getAll(name)];
  });
  const { success, data, error } = schema.safeParse(Object.fromEntries(given));
  if (success) return data;
  const [{ path, message } = { path: [], message: '' }] = error.issues;
  throw new HttpError('invalid_parameter', `${String(path[0])} ${message}.`);
}

/** Whether a parameter can be repeated. */
const isList = (schema: unknown): boolean => schema instanceof z.ZodDefault && schema.unwrap() instanceof z.ZodArray;

export function wholeNumber(min: number, max: number) {
  const error = must(`be a whole number from ${min} to ${max}`);
  const number = z.int({ error }).min(min, { error }).max(max, { error });
  return z
    .string({ error })
    .regex(/^\d{1,9}$/, { error })
    .transform(Number)
    .pipe(number);
}

/** The number of keys to skip. */
export const offset = wholeNumber(0, 999_999_999).default(0);

export const choice = <const T extends readonly string[]>(options: T) =>
  z.enum(options, { error: must(`be one of ${options.join(', ')}`) });

/** Where a walk through the keys continues: the `next` of a previous answer. */
export const after = cursor((text) => readCursor(text) !== undefined);

export const cursorIn = (text: string | undefined): KeyCursor | undefined =>
  text === undefined ? undefined : readCursor(text);

/** The `next` of a previous answer. */
export function cursor(isGiven: (text: string) => boolean) {
  const error = must('be the `next` of a previous response');
  return z.string({ error }).refine(isGiven, { error }).optional();
}

const LONGEST_TEXT = 200;
const TEXT = must(`be given once, with at most ${LONGEST_TEXT} characters`);

/** An empty text counts as none. */
export const text = z.string({ error: TEXT }).max(LONGEST_TEXT, { error: TEXT }).optional();

/** The bounds of a search, each an RFC 3339 time. */
export const period = { from: time.optional(), to: time.optional() };

/** @throws {HttpError} 400 unless they are in order */
export function checkOrder(from: number | undefined, to: number | undefined): void {
  if (from !== undefined && to !== undefined && from > to)
    throw new HttpError('invalid_parameter', 'from must not be after to.');
}

/** In Unix time in ms. */
export const msOf = (time: string | undefined): number | undefined =>
  time === undefined ? undefined : Date.parse(time);

const TAG = must('be the name and value of a tag, such as customer:acme');

const partsOf = (given: readonly string[]) => given.flatMap(splitTags);

/** Tags, each in a parameter of its own or several in one, such as `customer:acme,env:prod`. A key must have all. */
export const tag = z
  .array(z.string().refine((text) => !partsOf([text]).includes(undefined), { error: TAG }))
  .default([]);

export const tagsIn = (given: readonly string[]): [name: string, value: string][] =>
  partsOf(given).filter((one) => one !== undefined);
