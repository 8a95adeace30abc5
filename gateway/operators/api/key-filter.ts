import { z } from 'zod';
import { must } from '../../../shared/schemas/must.ts';
import { SECOND } from '../../limiter/bucket.ts';
import { bucketsAt } from '../../limiter/decide.ts';
import { type KeyEntry, usedOfDay } from '../../limiter/key-record.ts';
import { isPlanName, PLAN_NAMES, type PlanTable } from '../../limiter/plans.ts';
import { hasTags } from '../../limiter/tags.ts';
import { KEY_STATES, stateOf } from './key-view.ts';
import { choice, tag, tagsIn, wholeNumber } from './query.ts';

const LONGEST_UNUSED_SECONDS = 366 * 86_400;

type Filter = (entry: KeyEntry) => boolean;

/** The filters of a query, all of which must match. */
export const KeyFilters = z.object({
  /** A part of the name, in any case. */
  name: z.string({ error: must('be given once') }).optional(),
  plan: choice(PLAN_NAMES).optional(),
  state: choice(KEY_STATES).optional(),
  tag,
  /** The used share of the day limit, in percent. */
  near: wholeNumber(1, 100).optional(),
  /** The time since the last decision, or since the key was issued. */
  unusedSeconds: wholeNumber(1, LONGEST_UNUSED_SECONDS).optional(),
});

/** @param now in microseconds */
export function wantedKeys(given: z.infer<typeof KeyFilters>, plans: PlanTable, now: number): Filter {
  const { plan, state, near, unusedSeconds } = given;
  const name = given.name?.toLowerCase();
  const tags = tagsIn(given.tag);
  const filters: readonly (false | Filter)[] = [
    name !== undefined && (({ record }) => record.name.toLowerCase().includes(name)),
    plan !== undefined && (({ record }) => record.plan === plan),
    state !== undefined && ((entry) => stateOf(entry, now) === state),
    tags.length > 0 && (({ record }) => hasTags(record.tags, tags)),
    near !== undefined && ((entry) => hasUsed(near, entry, plans, now)),
    unusedSeconds !== undefined && ((entry) => lastUsed(entry) + unusedSeconds * SECOND <= now),
  ];
  const chosen = filters.filter((filter) => filter !== false);
  return (entry) => chosen.every((isMatch) => isMatch(entry));
}

const lastUsed = ({ asOf, record }: KeyEntry): number => asOf ?? record.createdAt;

/** A key without usable limits never matches. */
function hasUsed(percent: number, entry: KeyEntry, plans: PlanTable, now: number): boolean {
  const day = dayUse(entry, plans, now);
  return day !== undefined && day.used * 100 >= percent * day.limit;
}

/** What a key has used of its day limit; undefined without usable limits. */
export function dayUse(entry: KeyEntry, plans: PlanTable, now: number) {
  const { plan } = entry.record;
  const day = isPlanName(plan) ? bucketsAt(entry.record, entry, plans[plan], now)?.[1] : undefined;
  return day && { limit: day.limit, used: usedOfDay(day, entry, now) };
}
