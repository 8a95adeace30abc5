import { SECOND } from '../../limiter/clock.ts';
import { bucketsAt } from '../../limiter/decide.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import type { BucketState } from '../../limiter/limiter.ts';
import { isPlanName, PLAN_NAMES, type PlanTable } from '../../limiter/plans.ts';
import { hasTags } from '../../limiter/tags.ts';
import { KEY_STATES, stateOf } from './key-view.ts';
import { choice, tagsIn, wholeNumber } from './query.ts';

const NEAR_PERCENT = 80;
const LONGEST_UNUSED_SECONDS = 366 * 86_400;

type Filter = (entry: KeyEntry) => boolean;

/**
 * The filters of a query, all of which must match: `name` is a part of the name, case-insensitive; `plan`; `state`; each `tag`;
 * `near` is the used share of the day limit, in percent; `unusedSeconds` is the time since the last decision, or since
 * the key was issued.
 * @param now in microseconds
 * @throws {HttpError} 400 for an invalid value
 */
export function wantedKeys(query: URLSearchParams, plans: PlanTable, now: number): Filter {
  const name = query.get('name')?.toLowerCase();
  const plan = choice(query, 'plan', PLAN_NAMES);
  const state = choice(query, 'state', KEY_STATES);
  const tags = tagsIn(query);
  const percent = wholeNumber(query, 'near', { min: 1, max: 100, fallback: NEAR_PERCENT });
  const unused = wholeNumber(query, 'unusedSeconds', { min: 1, max: LONGEST_UNUSED_SECONDS, fallback: 1 }) * SECOND;
  const filters: readonly (false | Filter)[] = [
    name !== undefined && (({ record }) => record.name.toLowerCase().includes(name)),
    plan !== undefined && (({ record }) => record.plan === plan),
    state !== undefined && ((entry) => stateOf(entry, now) === state),
    tags.length > 0 && (({ record }) => hasTags(record.tags, tags)),
    query.has('near') && ((entry) => hasUsed(percent, entry, plans, now)),
    query.has('unusedSeconds') && ((entry) => lastUsed(entry) + unused <= now),
  ];
  const chosen = filters.filter((filter) => filter !== false);
  return (entry) => chosen.every((isMatch) => isMatch(entry));
}

const lastUsed = ({ asOf, record }: KeyEntry): number => asOf ?? record.createdAt;

/** A key without usable limits never matches. */
function hasUsed(percent: number, entry: KeyEntry, plans: PlanTable, now: number): boolean {
  const day = dayBucket(entry, plans, now);
  return day !== undefined && (day.limit - day.tokens) * 100 >= percent * day.limit;
}

/** The day bucket of a key at this time; undefined without usable limits. */
export function dayBucket(entry: KeyEntry, plans: PlanTable, now: number): BucketState | undefined {
  const { plan } = entry.record;
  return isPlanName(plan) ? bucketsAt(entry.record, entry, plans[plan], now)?.[1] : undefined;
}
