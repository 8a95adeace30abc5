import { HttpError } from '../../shared/errors.ts';
import { writePlace } from '../access/key-walk.ts';
import type { KeyEntry } from '../access/keys.ts';
import { countsOf, DAYS_KEPT } from '../access/usage.ts';
import { DAY } from '../access/verdict.ts';
import type { AdminOperation } from './parts.ts';
import { placeIn, wholeNumber } from './query.ts';

const PAGE = 100;
const DAY_MS = 86_400_000;

/** What one key was used on one day (UTC). Its name and its plan are those of now, or of when it was revoked. */
export interface UsedOnDay {
  readonly day: string;
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly admitted: number;
  readonly refused: number;
}

/**
 * What keys have used, day by day, the oldest key first, those that were revoked in the last 36 days too. `limit` is in
 * keys; `next`, given back as `after`, goes on.
 */
export const listUsage: AdminOperation = async ({ parts, query }) => {
  const today = Math.floor((await parts.keys.now()) / DAY);
  const keptFrom = today - DAYS_KEPT + 1;
  const [from, to] = [dayIn(query, 'from', keptFrom), dayIn(query, 'to', today)];
  if (from > to) throw new HttpError('invalid_parameter', 'from must not be after to.');
  const limit = wholeNumber(query, 'limit', { min: 1, max: PAGE, fallback: PAGE });
  const { keys, next } = await parts.keys.walk({ after: placeIn(query), limit });
  const usage = keys.flatMap((key) => daysOf(key, Math.max(from, keptFrom), to));
  return { status: 200, body: { keptFrom: toDate(keptFrom), usage, next: next && writePlace(next) } };
};

function daysOf(entry: KeyEntry, from: number, to: number): UsedOnDay[] {
  const { id, record } = entry;
  const days = countsOf(entry.usage.days, entry).filter(({ at }) => at >= from && at <= to);
  return days.map(({ at, ...count }) => ({ day: toDate(at), id, name: record.name, plan: record.plan, ...count }));
}

/** A date in a query, as days since 1970. @throws {HttpError} 400 for anything else */
function dayIn(query: URLSearchParams, name: string, fallback: number): number {
  const [text = toDate(fallback), ...more] = query.getAll(name);
  const time = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(text) : Number.NaN;
  if (more.length === 0 && !Number.isNaN(time) && toDate(time / DAY_MS) === text) return time / DAY_MS;
  throw new HttpError('invalid_parameter', `${name} must be a date like 2026-11-01.`);
}

const toDate = (day: number): string => new Date(day * DAY_MS).toISOString().slice(0, 10);
