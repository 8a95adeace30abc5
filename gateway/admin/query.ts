import { HttpError } from '../../shared/errors.ts';

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
