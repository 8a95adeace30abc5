import { FIELD_NAMES, fieldsOf, MAX_LIMIT, PLAN_FIELDS, PLAN_NAMES, parseField } from '../../limiter/plans.ts';

/** The gateway's own rules for plans, so that errors show while typing. */

export type { Plan, PlanField, PlanName, PlanTable } from '../../limiter/plans.ts';
export { FIELD_NAMES, fieldsOf, PLAN_FIELDS, PLAN_NAMES, parseField };

/** The error of a typed value; undefined if it is valid. */
export const faultOfValue = (field: (typeof FIELD_NAMES)[number], text: string): string | undefined =>
  parseField(field, text) === undefined ? `A whole number from 1 to ${MAX_LIMIT.toLocaleString('en-US')}.` : undefined;
