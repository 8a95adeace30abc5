import { hash } from 'node:crypto';
import { z } from 'zod';
import { STORED_FIELDS, type StoredPlans, storedValue } from './plans.ts';

/** The history of the plan table: who changed what, when and why; and the version that tells one table from another. */

/** Older records are dropped. */
export const HISTORY_LENGTH = 1_000;

/** One field, named as in `gateway:plans`. Undefined where there was, or is, none. */
const FieldChange = z.object({ field: z.string(), from: z.string().optional(), to: z.string().optional() });

export type FieldChange = Readonly<z.infer<typeof FieldChange>>;

export const PlanChange = z.object({
  author: z.string(),
  reason: z.string(),
  /** By hand: seen in the table, and made by nobody who said so. */
  action: z.enum(['set', 'rollback', 'by hand']),
  changes: z.array(FieldChange),
  /** Of the table that it led to. */
  version: z.string(),
});

export type PlanChange = Readonly<z.infer<typeof PlanChange>>;

/** As Redis numbers the records of a stream: Unix time in milliseconds, and a count within it. */
export const RecordId = z.string().regex(/^\d{1,16}-\d{1,9}$/);

export const RecordedChange = PlanChange.extend({ id: RecordId });

export type RecordedChange = Readonly<z.infer<typeof RecordedChange>>;

/**
 * The table, as far as plans go: a text for every field, undefined where there is none. Fields are in one order, whatever
 * order they are stored in; what is no field of a plan changes nothing.
 */
export const fieldsIn = (stored: StoredPlans): [field: string, value: string | undefined][] =>
  STORED_FIELDS.map((field) => [field, stored[field]]);

/** Equal for equal tables, however they came to be. */
export const versionOf = (stored: StoredPlans): string =>
  hash('sha256', JSON.stringify(STORED_FIELDS.map((field) => [field, storedValue(stored, field)])), 'hex').slice(0, 16);

/** Field by field, what makes one table the other. */
export function changesBetween(before: StoredPlans, after: StoredPlans): FieldChange[] {
  const changes = STORED_FIELDS.map((field) => ({
    field,
    from: storedValue(before, field),
    to: storedValue(after, field),
  }));
  return changes.filter(({ from, to }) => from !== to);
}
