import { hash } from 'node:crypto';
import { z } from 'zod';
import { STORED_FIELDS, type StoredPlans, storedValue } from '../limiter/plans.ts';

/** The history of the plan table: who changed what, when and why; and the version that identifies a table. */

/** Older records are dropped. */
export const HISTORY_LENGTH = 1_000;

/** One field, named as in `gateway:plans`. Undefined if there was, or is, no value. */
export const FieldChange = z.object({ field: z.string(), from: z.string().optional(), to: z.string().optional() });

export type FieldChange = Readonly<z.infer<typeof FieldChange>>;

export const PlanChange = z.object({
  author: z.string(),
  reason: z.string(),
  /** 'by hand': found in the table, not made through a gateway. */
  action: z.enum(['set', 'rollback', 'by hand']),
  changes: z.array(FieldChange),
  /** The version of the resulting table. */
  version: z.string(),
});

export type PlanChange = Readonly<z.infer<typeof PlanChange>>;

/** The id of a record in a Redis stream: Unix time in milliseconds, and a sequence number. */
export const RecordId = z.string().regex(/^\d{1,16}-\d{1,9}$/);

export const RecordedChange = PlanChange.extend({ id: RecordId });

export type RecordedChange = Readonly<z.infer<typeof RecordedChange>>;

/** Equal tables have equal versions. */
export const versionOf = (stored: StoredPlans): string =>
  hash('sha256', JSON.stringify(STORED_FIELDS.map((field) => [field, storedValue(stored, field)])), 'hex').slice(0, 16);

/** The record of a change; undefined if it has no effect. */
export function changeFrom(
  before: StoredPlans,
  after: StoredPlans,
  { author, reason, action }: Pick<PlanChange, 'author' | 'reason' | 'action'>,
): PlanChange | undefined {
  const changes = changesBetween(before, after);
  return changes.length === 0 ? undefined : { author, reason, action, changes, version: versionOf(after) };
}

/** The fields in which two tables differ. */
export function changesBetween(before: StoredPlans, after: StoredPlans): FieldChange[] {
  const changes = STORED_FIELDS.map((field) => ({
    field,
    from: storedValue(before, field),
    to: storedValue(after, field),
  }));
  return changes.filter(({ from, to }) => from !== to);
}
