import { z } from 'zod';
import { must } from '../../../shared/schemas/must.ts';
import { MINUTE, SECOND } from '../../limiter/bucket.ts';
import { holdsApiKey, isKeyId } from '../../limiter/credential.ts';
import { countsOf, type KeyEntry, usedOfDay } from '../../limiter/key-record.ts';
import { PLAN_NAMES, type PlanTable } from '../../limiter/plans.ts';
import { hasTags } from '../../limiter/tags.ts';
import { type KeyCursor, writeCursor } from '../../stores/storage.ts';
import { MOST_DECISIONS } from '../../telemetry/decision-report.ts';
import { FoundAnswer, KeysAnswer, TopAnswer } from './answers.ts';
import { KEY_ORDER_NAMES, KEY_ORDERS, KEY_STATES, loudestFirst, TOP_BY } from './key-order.ts';
import { bucketsIn, describeKeys, stateOf, sumsOf } from './key-view.ts';
import { type AdminDependencies, operation } from './operation.ts';
import { decisionsOn } from './requests.ts';
import { choice, offset, tag, tagsIn, wholeNumber, word } from './values.ts';

/**
 * Lists and finds keys. One call checks a limited number of keys, so that a search among many keys does not delay other
 * calls. The next call continues after the key that `next` names.
 */

const PAGE = 100;
const TOP = 10;
const TOP_MINUTES = 5;
const MOST_MINUTES = 60;
/** No key name or request id is longer. */
const LONGEST_TEXT = 200;
/** Shorter search terms are only matched against names, because they occur in ids by chance. */
const SHORTEST_ID_PART = 4;

/** Keys can be skipped only in the order in which they are read. */
const skipsNothing = ({ offset }: { offset: number | KeyCursor }) => typeof offset !== 'number' || offset === 0;
const NOTHING_TO_SKIP = { path: ['offset'], error: must('be 0 or the `next` of a previous response in this order') };

const LONGEST_UNUSED_SECONDS = 366 * 86_400;

/** The filters of a query. A key must match all of them. */
const KeyFilters = z.object({
  /** A part of the name, ignoring case. */
  name: word,
  plan: choice(PLAN_NAMES).optional(),
  state: choice(KEY_STATES).optional(),
  tag,
  /** The minimum share of the day limit that a key has used, in percent. */
  near: wholeNumber(1, 100).optional(),
  /** The minimum time since the last decision or, without one, since the key was issued. */
  unusedSeconds: wholeNumber(1, LONGEST_UNUSED_SECONDS).optional(),
});

const KeysQuery = KeyFilters.extend({
  offset,
  limit: wholeNumber(1, PAGE).default(PAGE),
  sort: choice(KEY_ORDER_NAMES).default('newest'),
}).refine((query) => query.sort === 'newest' || skipsNothing(query), NOTHING_TO_SKIP);

/**
 * Lists keys, newest first, with the current state of their buckets. `offset` skips keys, or continues after the key
 * that `next` named. In any other order, the response has only the first `limit` of the keys that the call checked: to
 * sort all keys, follow `next` and merge the responses.
 */
export const listKeys = operation(
  { query: KeysQuery, answer: KeysAnswer },
  async ({ deps, query: { offset, limit, sort, ...filters } }) => {
    const now = await deps.keys.now();
    const { table } = deps.planCache;
    const isWanted = wantedKeys(filters, table, now);
    if (sort === 'newest') {
      const { total, keys, next } = await deps.keys.list({ offset, limit, isWanted });
      return { total, ...placeOf(offset, next), keys: await describeKeys(deps, keys, now) };
    }
    const ranked = (entry: KeyEntry) => {
      const { used, limit } = dayUse(entry, table, now) ?? { used: 0, limit: 1 };
      const { name, createdAt } = entry.record;
      return { entry, name, createdAt, lastUsedAt: entry.asOf, dayUsed: used / limit };
    };
    const { total, first, next } = await firstOf(deps, { offset, limit }, KEY_ORDERS[sort], (entry) =>
      isWanted(entry) ? ranked(entry) : undefined,
    );
    const sorted = first.map(({ entry }) => entry);
    return { total, ...placeOf(offset, next), keys: await describeKeys(deps, sorted, now) };
  },
);

const placeOf = (offset: number | KeyCursor, next: KeyCursor | undefined) => ({
  offset: typeof offset === 'number' ? offset : undefined,
  next: next && writeCursor(next),
});

/**
 * Checks as many keys as one call may, and returns the first `limit` of them in the order of `compare`.
 * @param ranked returns what to compare; undefined for a key that does not match
 */
async function firstOf<T>(
  { keys }: AdminDependencies,
  { offset, limit }: { readonly offset: number | KeyCursor; readonly limit: number },
  compare: (a: T, b: T) => number,
  ranked: (entry: KeyEntry) => T | undefined,
) {
  const first: T[] = [];
  const isWanted = (entry: KeyEntry) => {
    const one = ranked(entry);
    if (one !== undefined && (first.length < limit || compare(one, first.at(-1)!) < 0)) {
      first.push(one);
      first.sort(compare);
      if (first.length > limit) first.pop();
    }
    return false;
  };
  return { first, ...(await keys.list({ offset, limit: 1, isWanted })) };
}

const TopQuery = KeyFilters.extend({
  offset,
  limit: wholeNumber(1, PAGE).default(TOP),
  minutes: wholeNumber(1, MOST_MINUTES).default(TOP_MINUTES),
  by: choice(TOP_BY).default('requests'),
}).refine(skipsNothing, NOTHING_TO_SKIP);

/**
 * Lists the keys with the most requests across all gateways, in the current minute and the `minutes` full ones before
 * it. `by=refused` ranks by requests refused by limits. Requests refused by bans are never counted.
 */
export const topKeys = operation(
  { query: TopQuery, answer: TopAnswer },
  async ({ deps, query: { offset, limit, minutes, by, ...filters } }) => {
    const now = await deps.keys.now();
    const { table } = deps.planCache;
    const isWanted = wantedKeys(filters, table, now);
    const from = Math.floor(now / MINUTE) - minutes;
    const { total, first, next } = await firstOf(deps, { offset, limit }, loudestFirst(by), (entry) => {
      const recent = sumsOf(countsOf(entry.usage.minutes, entry).filter(({ at }) => at >= from));
      const isLoud = recent.refused + (by === 'refused' ? 0 : recent.admitted) > 0;
      return isLoud && isWanted(entry) ? { entry, recent } : undefined;
    });
    const loudest = first.map(({ entry }) => entry);
    const described = await describeKeys(deps, loudest, now);
    const keys = described.map((key, at) => ({ ...key, recent: first[at]!.recent }));
    return { minutes, total, ...placeOf(offset, next), keys };
  },
);

const TEXT = `must have 1 to ${LONGEST_TEXT} characters`;

const FindQuery = z.object({
  offset,
  text: z
    .string(TEXT)
    .trim()
    .min(1, TEXT)
    .max(LONGEST_TEXT, TEXT)
    .refine((text) => !holdsApiKey(text), 'must not contain a whole key: send only its id'),
});

/**
 * Finds keys by a search term: the key with this id; if there is none, the keys of recent requests with this id;
 * if there are none, the keys whose name contains the term or whose id begins with it.
 */
export const findKeys = operation(
  { query: FindQuery, answer: FoundAnswer },
  async ({ deps, query: { offset, text } }) => {
    const now = await deps.keys.now();
    const found = async (foundBy: string, entries: readonly KeyEntry[], next?: KeyCursor) => {
      const described = await describeKeys(deps, entries, now);
      return { keys: described.map((key) => ({ ...key, foundBy })), next: next && writeCursor(next) };
    };
    if (offset === 0) {
      const named = isKeyId(text) ? await deps.keys.get(text) : undefined;
      if (named !== undefined) return found('id', [named]);
      const asked = await keysOfRequest(deps, text);
      if (asked.length > 0) return found('request', asked);
    }
    const lower = text.toLowerCase();
    const isIdPart = text.length >= SHORTEST_ID_PART;
    const isWanted = ({ id, record }: KeyEntry) =>
      record.name.toLowerCase().includes(lower) || (isIdPart && id.startsWith(text));
    const { keys, next } = await deps.keys.list({ offset, limit: PAGE, isWanted });
    return found('name', keys, next);
  },
);

async function keysOfRequest(deps: AdminDependencies, requestId: string): Promise<KeyEntry[]> {
  const { decisions } = await decisionsOn(deps, { requestId, limit: MOST_DECISIONS });
  const ids = decisions.map(({ keyId }) => keyId);
  const found = await Promise.all([...new Set(ids)].map((id) => deps.keys.get(id)));
  return found.filter((entry) => entry !== undefined);
}

/** @param now in microseconds */
function wantedKeys(given: z.infer<typeof KeyFilters>, plans: PlanTable, now: number): (entry: KeyEntry) => boolean {
  const { plan, state, near, unusedSeconds } = given;
  const name = given.name?.toLowerCase();
  const tags = tagsIn(given.tag);
  /** A key without usable limits never matches. */
  const isNear = (percent: number, entry: KeyEntry) => {
    const day = dayUse(entry, plans, now);
    return day !== undefined && day.used * 100 >= percent * day.limit;
  };
  return (entry) => {
    const { record, asOf } = entry;
    return (
      (name === undefined || record.name.toLowerCase().includes(name)) &&
      (plan === undefined || record.plan === plan) &&
      (state === undefined || stateOf(entry, plans, now) === state) &&
      hasTags(record.tags, tags) &&
      (near === undefined || isNear(near, entry)) &&
      (unusedSeconds === undefined || (asOf ?? record.createdAt) + unusedSeconds * SECOND <= now)
    );
  };
}

/** How much of its day limit a key has used; undefined without usable limits. */
function dayUse(entry: KeyEntry, plans: PlanTable, now: number) {
  const day = bucketsIn(entry, plans, now)?.[1];
  return day && { limit: day.limit, used: usedOfDay(day, entry, now) };
}
