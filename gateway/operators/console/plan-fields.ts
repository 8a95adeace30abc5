import { type PlanField, parseField, whenAbsent } from '../../limiter/plans.ts';

/** The gateway's own rules for plans, so that errors show up while typing. */

export * from '../../limiter/plans.ts';

/** Reads a typed value. null stands for an absent number, undefined for an invalid value. */
export const typedValue = (field: PlanField, text: string): number | string | null | undefined =>
  text === '' && whenAbsent(field) !== undefined ? null : parseField(field, text);
