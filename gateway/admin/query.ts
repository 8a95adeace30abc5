import { HttpError } from '../../shared/errors.ts';
import { type Place, readPlace } from '../access/key-walk.ts';

/**
 * A whole number in a query.
 * @throws {HttpError} 400 for anything else, out of range or given twice
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
 * Where a walk through the keys goes on; undefined where it begins.
 * @throws {HttpError} 400 for what is no place that an answer gave
 */
export function placeIn(query: URLSearchParams): Place | undefined {
  const text = query.get('after');
  const place = text === null ? undefined : readPlace(text);
  if (text !== null && place === undefined)
    throw new HttpError('invalid_parameter', 'after must be what `next` of an answer was.');
  return place;
}
