import type { ActivityAnswer, ActivityView } from '../api/answers.ts';
import { get } from './api.ts';

/** Parts of the address that choose entries of the audit log; they are the admin API's own filters. */
export const AUDIT_FILTERS = ['actor', 'action', 'target', 'from', 'to'] as const;
export type AuditFilters = Readonly<Partial<Record<(typeof AUDIT_FILTERS)[number], string>>>;

export interface EntriesQuery {
  readonly filters: AuditFilters;
  readonly limit: number;
  /** The `next` of another answer; undefined for the newest. */
  readonly after?: string | undefined;
}

/** Entries that one call may return. */
const MOST_A_CALL = 1_000;

/**
 * Entries of the audit log, the newest first. One call checks a limited number of entries, so reading continues until
 * enough were found or the log ends.
 */
export async function readEntries({ filters, limit, after }: EntriesQuery): Promise<ActivityAnswer> {
  const activity: ActivityView[] = [];
  let next = after;
  do {
    const count = String(Math.min(limit - activity.length, MOST_A_CALL));
    const query = new URLSearchParams({ ...filters, limit: count, ...(next !== undefined && { after: next }) });
    const { body } = await get<ActivityAnswer>(`/activity?${query}`);
    activity.push(...body.activity);
    next = body.next;
  } while (next !== undefined && activity.length < limit);
  return { activity, next };
}
