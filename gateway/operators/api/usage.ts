import { HttpError } from '../../../shared/http/errors.ts';
import { DAY, MINUTE } from '../../limiter/clock.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import { countsOf, DAYS_KEPT, dateOf, MINUTES_KEPT } from '../../limiter/usage-marks.ts';
import { writeCursor } from '../../stores/storage.ts';
import type { KeyUsageAnswer } from './answers.ts';
import { findKey } from './keys.ts';
import type { AdminOperation } from './operation.ts';
import { cursorIn, wholeNumber } from './query.ts';

const PAGE = 100;
const DAY_MS = 86_400_000;
/** Microseconds. */
const MILLISECOND = 1_000;

/** The use of one key on one day (UTC). Its name and plan are the current ones, or those at its revocation. */
export interface UsedOnDay {
  readonly day: string;
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly admitted: number;
  readonly refused: number;
}

/**
 * The use of keys by day, the oldest key first, including those revoked in the last 36 days. `limit` counts keys. To
 * continue, send `next` back as `after`.
 */
export const listUsage: AdminOperation = async ({ deps, query }) => {
  const today = Math.floor((await deps.keys.now()) / DAY);
  const keptFrom = today - DAYS_KEPT + 1;
  const [from, to] = [dayIn(query, 'from', keptFrom), dayIn(query, 'to', today)];
  if (from > to) throw new HttpError('invalid_parameter', 'from must not be after to.');
  const limit = wholeNumber(query, 'limit', { min: 1, max: PAGE, fallback: PAGE });
  const { keys, next } = await deps.keys.walk({ after: cursorIn(query), limit });
  const usage = keys.flatMap((key) => daysOf(key, Math.max(from, keptFrom), to));
  return { status: 200, body: { keptFrom: dateOf(keptFrom), usage, next: next && writeCursor(next) } };
};

/** The use of one key: its last hour by minute, and its last 36 days (UTC), the oldest first. Idle times are left out. */
export const showKeyUsage: AdminOperation = async ({ deps, params }) => {
  const entry = await findKey(deps, params[0]);
  const now = await deps.keys.now();
  const minute = Math.floor(now / MINUTE);
  const minutes = countsOf(entry.usage.minutes, entry)
    .filter(({ at }) => at > minute - MINUTES_KEPT && at <= minute)
    .map(({ at, ...count }) => ({ at: new Date((at * MINUTE) / MILLISECOND).toISOString(), ...count }));
  const today = Math.floor(now / DAY);
  const days = daysOf(entry, today - DAYS_KEPT + 1, today).map(({ day, admitted, refused }) => ({
    at: day,
    admitted,
    refused,
  }));
  const nowAt = new Date(now / MILLISECOND).toISOString();
  return { status: 200, body: { now: nowAt, minutes, days } satisfies KeyUsageAnswer };
};

function daysOf(entry: KeyEntry, from: number, to: number): UsedOnDay[] {
  const { id, record } = entry;
  const days = countsOf(entry.usage.days, entry).filter(({ at }) => at >= from && at <= to);
  return days.map(({ at, ...count }) => ({ day: dateOf(at), id, name: record.name, plan: record.plan, ...count }));
}

/** A date in a query, as days since 1970. @throws {HttpError} 400 for anything else */
function dayIn(query: URLSearchParams, name: string, fallback: number): number {
  const [text = dateOf(fallback), ...more] = query.getAll(name);
  const time = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(text) : Number.NaN;
  if (more.length === 0 && !Number.isNaN(time) && dateOf(time / DAY_MS) === text) return time / DAY_MS;
  throw new HttpError('invalid_parameter', `${name} must be a date like 2026-11-01.`);
}
