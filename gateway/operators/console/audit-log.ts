import type { ActivityAnswer } from '../api/answers.ts';
import { bodyOf } from './api.ts';
import * as whole from './whole-answers.ts';

/** Parts of the address that filter the audit log. They are the admin API's own filters. */
export const AUDIT_FILTERS = ['actor', 'action', 'target', 'from', 'to'] as const;
export type AuditFilters = Readonly<Partial<Record<(typeof AUDIT_FILTERS)[number], string>>>;

export interface EntriesQuery {
  readonly filters: AuditFilters;
  readonly limit: number;
  /** The `next` of a previous answer; undefined for the newest entries. */
  readonly after?: string | undefined;
}

/** Reads entries of the audit log, the newest first. */
export const readEntries = ({ filters, limit, after }: EntriesQuery): Promise<ActivityAnswer> =>
  whole.readEntries(bodyOf, { ...filters, ...(after !== undefined && { after }) }, limit);
