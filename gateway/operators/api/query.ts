import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { splitTag } from '../../limiter/tags.ts';
import { type KeyCursor, readCursor } from '../../stores/storage.ts';

/**
 * A whole number in a query.
 * @throws {HttpError} 400 for anything else, out of range or repeated
 */
export function wholeNumber(
  query: URLSearchParams,
  name: string,
  { min, max, fallback }: { min: number; max: number; fallback: number },
): number {
  const [text = String(fallback), ...more] = query.getAll(name);
  const value = /^\d{1,9}$/.test(text) && more.length === 0 ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new HttpError('invalid_parameter', `${name} must be a whole number from ${min} to ${max}.`);
}

/**
 * One of several words in a query; undefined if it is not given.
 * @throws {HttpError} 400 for anything else, or repeated
 */
export function choice<T extends string>(query: URLSearchParams, name: string, options: readonly T[]): T | undefined {
  const [text, ...more] = query.getAll(name);
  if (text === undefined) return undefined;
  const option = options.find((one) => one === text);
  if (option !== undefined && more.length === 0) return option;
  throw new HttpError('invalid_parameter', `${name} must be one of ${options.join(', ')}.`);
}

/**
 * The tags of a query, each in a `tag` of its own or several in one, as `customer:acme,env:prod`. A key must have all.
 * @throws {HttpError} 400 for what can be no tag
 */
export const tagsIn = (query: URLSearchParams): [name: string, value: string][] =>
  query
    .getAll('tag')
    .flatMap((text) => text.split(','))
    .map((text) => {
      const tag = splitTag(text.trim());
      if (tag !== undefined) return tag;
      throw new HttpError('invalid_parameter', 'tag must be the name and the value of a tag, as customer:acme.');
    });

/**
 * Where a walk through the keys continues; undefined at its beginning.
 * @throws {HttpError} 400 for a text that no answer gave
 */
export function cursorIn(query: URLSearchParams): KeyCursor | undefined {
  const text = query.get('after');
  const cursor = text === null ? undefined : readCursor(text);
  if (text !== null && cursor === undefined)
    throw new HttpError('invalid_parameter', 'after must be what `next` of an answer was.');
  return cursor;
}

const LONGEST_TEXT = 200;

/**
 * A text in a query; undefined if it is not given, or empty.
 * @throws {HttpError} 400 for a long one, or repeated
 */
export function textIn(query: URLSearchParams, name: string): string | undefined {
  const [text, ...more] = query.getAll(name);
  if (more.length > 0) throw new HttpError('invalid_parameter', `${name} is given more than once.`);
  if ((text?.length ?? 0) > LONGEST_TEXT)
    throw new HttpError('invalid_parameter', `${name} must have at most ${LONGEST_TEXT} characters.`);
  return text === '' ? undefined : text;
}

/**
 * A time in a query as Unix time in ms; undefined if it is not given.
 * @throws {HttpError} 400 for anything that is no RFC 3339 time
 */
export function timeIn(query: URLSearchParams, name: string): number | undefined {
  const text = textIn(query, name);
  if (text === undefined) return undefined;
  if (z.iso.datetime({ offset: true }).safeParse(text).success) return Date.parse(text);
  throw new HttpError('invalid_parameter', `${name} must be an RFC 3339 time.`);
}
