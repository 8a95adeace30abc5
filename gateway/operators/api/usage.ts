import { setImmediate as nextTurn } from 'node:timers/promises';
import { HttpError } from '../../../shared/http/errors.ts';
import { DAY, MINUTE } from '../../limiter/clock.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import { hasTags, TAG_NAME, type Tags, valueOfTag } from '../../limiter/tags.ts';
import { countsOf, DAYS_KEPT, dateOf, MINUTES_KEPT } from '../../limiter/usage-marks.ts';
import { type KeyCursor, writeCursor } from '../../stores/storage.ts';
import type { KeyUsageAnswer, UsageAnswer } from './answers.ts';
import { shownTags } from './key-view.ts';
import { findKey } from './keys.ts';
import type { AdminOperation } from './operation.ts';
import { cursorIn, tagsIn, wholeNumber } from './query.ts';
import { UsageSums } from './usage-sums.ts';

const PAGE = 100;
/** Keys that one sum checks. The answer says where to continue. */
const SUMMED = 5_000;
const DAY_MS = 86_400_000;
/** Microseconds. */
const MILLISECOND = 1_000;

/** The use of one key. Its name, plan and tags are the current ones, or those at its revocation. */
export interface UsageOfKey {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly tags?: Tags | undefined;
  readonly admitted: number;
  readonly refused: number;
}

/** On one day (UTC). */
export type UsedOnDay = UsageOfKey & { readonly day: string };

/**
 * The use of keys by day, the oldest key first, including those revoked in the last 36 days: of all keys, or of those
 * with each `tag`. `by=key` sums the days from `from` to `to` by key, `by=tag:<name>` by the value of a tag. `limit`
 * counts keys; a sum by tag checks thousands. To continue, send `next` back as `after`, and add the sums up.
 */
export const listUsage: AdminOperation = async ({ deps, query }) => {
  const today = Math.floor((await deps.keys.now()) / DAY);
  const keptFrom = today - DAYS_KEPT + 1;
  const [from, to] = [dayIn(query, 'from', keptFrom), dayIn(query, 'to', today)];
  if (from > to) throw new HttpError('invalid_parameter', 'from must not be after to.');
  const limit = wholeNumber(query, 'limit', { min: 1, max: PAGE, fallback: PAGE });
  const wanted = tagsIn(query);
  const by = byIn(query);
  const daysOfKey = (key: KeyEntry) =>
    hasTags(key.record.tags, wanted) ? daysOf(key, Math.max(from, keptFrom), to) : [];
  const answer = (usage: UsageAnswer['usage'], next: KeyCursor | undefined) => ({
    status: 200,
    body: { keptFrom: dateOf(keptFrom), usage, next: next && writeCursor(next) } satisfies UsageAnswer,
  });
  let after = cursorIn(query);
  if (by === 'day' || by === 'key') {
    const { keys, next } = await deps.keys.walk({ after, limit });
    return answer(
      keys.flatMap((key) => (by === 'day' ? daysOfKey(key) : sumOf(daysOfKey(key)))),
      next,
    );
  }
  const sums = new UsageSums();
  for (let checked = 0; checked < SUMMED; checked += PAGE) {
    const { keys, next } = await deps.keys.walk({ after, limit: PAGE });
    for (const sum of keys.flatMap((key) => sumOf(daysOfKey(key))))
      sums.add({ ...sum, value: valueOfTag(sum.tags, by.tag), keys: 1 });
    after = next;
    if (next === undefined) break;
    await nextTurn();
  }
  return answer(sums.rows(), after);
};

/** @throws {HttpError} 400 for anything else */
function byIn(query: URLSearchParams): 'day' | 'key' | { readonly tag: string } {
  const [text = 'day', ...more] = query.getAll('by');
  const [, tag] = /^tag:(.*)$/s.exec(text) ?? [];
  if (more.length === 0 && tag !== undefined && TAG_NAME.test(tag)) return { tag };
  if (more.length === 0 && (text === 'day' || text === 'key')) return text;
  throw new HttpError('invalid_parameter', 'by must be day, key, or tag: and the name of a tag, as tag:customer.');
}

/** None for a key that was not used. */
function sumOf(days: readonly UsedOnDay[]): UsageOfKey[] {
  const [first] = days;
  if (first === undefined) return [];
  const { day: _day, ...key } = first;
  const sum = (of: 'admitted' | 'refused') => days.reduce((total, one) => total + one[of], 0);
  return [{ ...key, admitted: sum('admitted'), refused: sum('refused') }];
}

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
  const key = { id, name: record.name, plan: record.plan, tags: shownTags(record.tags) };
  return days.map(({ at, ...count }) => ({ day: dateOf(at), ...key, ...count }));
}

/** A date in a query, as days since 1970. @throws {HttpError} 400 for anything else */
function dayIn(query: URLSearchParams, name: string, fallback: number): number {
  const [text = dateOf(fallback), ...more] = query.getAll(name);
  const time = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(text) : Number.NaN;
  if (more.length === 0 && !Number.isNaN(time) && dateOf(time / DAY_MS) === text) return time / DAY_MS;
  throw new HttpError('invalid_parameter', `${name} must be a date like 2026-11-01.`);
}
