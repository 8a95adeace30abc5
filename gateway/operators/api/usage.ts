import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import { DAY, MINUTE } from '../../limiter/clock.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import { countsOf, DAYS_KEPT, dateOf, MINUTES_KEPT } from '../../limiter/usage-marks.ts';
import { writeCursor } from '../../stores/storage.ts';
import type { KeyUsageAnswer, UsageAnswer, UsedOnDay } from './answers.ts';
import { findKey } from './keys.ts';
import type { AdminOperation } from './operation.ts';
import { after, cursorIn, readQuery, wholeNumber } from './query.ts';

const PAGE = 100;
const DAY_MS = 86_400_000;
/** Microseconds. */
const MILLISECOND = 1_000;

const DATE = must('be a date like 2026-11-01');
const date = z.iso.date({ error: DATE }).optional();

export const UsageQuery = z.object({ from: date, to: date, limit: wholeNumber(1, PAGE).default(PAGE), after });

/**
 * The use of keys by day, the oldest key first, including those revoked in the last 36 days. `limit` counts keys. To
 * continue, send `next` back as `after`.
 */
export const listUsage: AdminOperation = async ({ deps, query }) => {
  const today = Math.floor((await deps.keys.now()) / DAY);
  const keptFrom = today - DAYS_KEPT + 1;
  const { limit, after, ...range } = readQuery(UsageQuery, query);
  const [from, to] = [dayOf(range.from) ?? keptFrom, dayOf(range.to) ?? today];
  if (from > to) throw new HttpError('invalid_parameter', 'from must not be after to.');
  const { keys, next } = await deps.keys.walk({ after: cursorIn(after), limit });
  const usage = keys.flatMap((key) => daysOf(key, Math.max(from, keptFrom), to));
  const body = { keptFrom: dateOf(keptFrom), usage, next: next && writeCursor(next) };
  return { status: 200, body: body satisfies UsageAnswer };
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

/** In days since 1970. */
const dayOf = (date: string | undefined): number | undefined =>
  date === undefined ? undefined : Date.parse(date) / DAY_MS;
