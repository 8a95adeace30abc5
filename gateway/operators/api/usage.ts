import { setImmediate as nextTurn } from 'node:timers/promises';
import { z } from 'zod';
import { must } from '../../../shared/schemas/must.ts';
import { DAY, MILLISECOND, MINUTE } from '../../limiter/bucket.ts';
import { countsOf, DAYS_KEPT, dateOf, type KeyEntry, MINUTES_KEPT } from '../../limiter/key-record.ts';
import { hasTags, TAG_NAME, valueOfTag } from '../../limiter/tags.ts';
import { type KeyCursor, writeCursor } from '../../stores/storage.ts';
import { addUp } from '../clients.ts';
import {
  type BanView,
  KeyUsageAnswer,
  UsageAnswer,
  type UsageOfKey,
  type UsageSum,
  type UsedOnDay,
} from './answers.ts';
import { refusedByBans, runningBans, shownTags, sumsOf, toTime } from './key-view.ts';
import { findKey } from './keys.ts';
import { operation } from './operation.ts';
import { after, checkOrder, cursorIn, tag, tagsIn, wholeNumber } from './values.ts';

const PAGE = 100;
/** The number of keys that one call checks for a sum. `next` is where the next call continues. */
const SUMMED = 5_000;
const DAY_MS = 86_400_000;

const DATE = must('be a date like 2026-11-01');
const date = z.iso.date({ error: DATE }).optional();
const BY = must('be day, key or tag:<name>, such as tag:customer');

const UsageQuery = z.object({
  from: date,
  to: date,
  tag,
  by: z
    .string({ error: BY })
    .refine((text) => text === 'day' || text === 'key' || TAG_NAME.test(tagIn(text)), { error: BY })
    .default('day'),
  limit: wholeNumber(1, PAGE).default(PAGE),
  after,
});

/**
 * Lists usage by day, for all keys or for those with every given `tag`, oldest key first. Keys revoked in the last 36
 * days are included. `by=key` sums the days from `from` to `to` by key, `by=tag:<name>` by the value of a tag. `limit`
 * is a number of keys; a sum by tag ignores it and checks thousands of keys per call. To continue, send `next` back as
 * `after`, and add up the sums.
 */
export const listUsage = operation(
  { query: UsageQuery, answer: UsageAnswer },
  async ({ deps, query: { limit, after, by, ...range } }) => {
    const now = await deps.keys.now();
    const today = Math.floor(now / DAY);
    const keptFrom = today - DAYS_KEPT + 1;
    const [from, to] = [dayOf(range.from) ?? keptFrom, dayOf(range.to) ?? today];
    checkOrder(from, to);
    const wanted = tagsIn(range.tag);
    const isWanted = ({ record }: KeyEntry) => hasTags(record.tags, wanted);
    const daysOfKey = (key: KeyEntry, ban?: BanView) => daysOf(key, Math.max(from, keptFrom), to, ban);
    const answer = (usage: UsageAnswer['usage'], next: KeyCursor | undefined) => ({
      keptFrom: dateOf(keptFrom),
      usage,
      next: next && writeCursor(next),
    });
    let cursor = cursorIn(after);
    if (by === 'day' || by === 'key') {
      const { keys, next } = await deps.keys.walk({ after: cursor, limit });
      const shown = keys.filter(isWanted);
      const bans = await runningBans(deps, shown, now);
      const days = shown.map((key) => daysOfKey(key, bans.get(key.id)));
      return answer(by === 'day' ? days.flat() : days.flatMap(sumOf), next);
    }
    const sums: UsageSum[] = [];
    for (let checked = 0; checked < SUMMED; checked += PAGE) {
      const { keys, next } = await deps.keys.walk({ after: cursor, limit: PAGE });
      for (const sum of keys.filter(isWanted).flatMap((key) => sumOf(daysOfKey(key))))
        sums.push({ ...sum, value: valueOfTag(sum.tags, tagIn(by)), keys: 1 });
      cursor = next;
      if (next === undefined) break;
      await nextTurn();
    }
    return answer(addUp(sums), cursor);
  },
);

/** The name of a tag in `tag:<name>`; empty if there is none. */
const tagIn = (by: string): string => /^tag:(.*)$/s.exec(by)?.[1] ?? '';

/** Empty for a key that was not used. */
function sumOf(days: readonly UsedOnDay[]): UsageOfKey[] {
  if (days[0] === undefined) return [];
  const { day: _day, ...key } = days[0];
  return [{ ...key, ...sumsOf(days) }];
}

/** The usage of one key: the last hour by minute and the last 36 days (UTC), oldest first, without idle times. */
export const showKeyUsage = operation({ target: findKey, answer: KeyUsageAnswer }, async ({ deps, target: entry }) => {
  const now = await deps.keys.now();
  const minute = Math.floor(now / MINUTE);
  const [byBans, bans] = await Promise.all([refusedByBans(deps, entry.id, minute), runningBans(deps, [entry], now)]);
  const decided = new Map(countsOf(entry.usage.minutes, entry).map((count) => [count.at, count]));
  const minutes = [...new Set([...decided.keys(), ...byBans.refused.keys()])]
    .filter((at) => at > minute - MINUTES_KEPT && at <= minute)
    .sort((a, b) => a - b)
    .map((at) => {
      const { admitted, refused } = decided.get(at) ?? { admitted: 0, refused: 0 };
      const isKnown = byBans.since !== undefined && (at * MINUTE) / MILLISECOND >= byBans.since;
      return {
        at: toTime(at * MINUTE),
        admitted,
        refused,
        banned: byBans.refused.get(at) ?? (isKnown ? 0 : undefined),
      };
    });
  const today = Math.floor(now / DAY);
  const days = daysOf(entry, today - DAYS_KEPT + 1, today);
  return {
    now: toTime(now),
    ban: bans.get(entry.id),
    bannedCountedSince: byBans.since === undefined ? undefined : new Date(byBans.since).toISOString(),
    minutes,
    days: days.map(({ day: at, admitted, refused }) => ({ at, admitted, refused })),
  };
});

function daysOf(entry: KeyEntry, from: number, to: number, ban?: BanView): UsedOnDay[] {
  const { id, record } = entry;
  const days = countsOf(entry.usage.days, entry).filter(({ at }) => at >= from && at <= to);
  const key = { id, name: record.name, plan: record.plan, tags: shownTags(record.tags), ban };
  return days.map(({ at, ...count }) => ({ day: dateOf(at), ...key, ...count }));
}

/** The date in days since 1970. */
const dayOf = (date: string | undefined): number | undefined =>
  date === undefined ? undefined : Date.parse(date) / DAY_MS;
