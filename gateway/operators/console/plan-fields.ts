import { type PlanField, parseField, whenAbsent } from '../../limiter/plans.ts';

/** The gateway's own rules for plans, so that errors show while typing. */

export * from '../../limiter/plans.ts';

/** A typed value. Null for an empty text in place of a number that may be absent; undefined if it is not valid. */
export const typedValue = (field: PlanField, text: string): number | string | null | undefined =>
  text === '' && whenAbsent(field) !== undefined ? null : parseField(field, text);
