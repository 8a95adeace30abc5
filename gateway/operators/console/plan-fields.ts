import {
  FIELD_NAMES,
  fieldsOf,
  leastOf,
  MAX_LIMIT,
  PLAN_FIELDS,
  PLAN_NAMES,
  parseField,
  whenAbsent,
} from '../../limiter/plans.ts';

/** The gateway's own rules for plans, so that errors show while typing. */

export type { Plan, PlanField, PlanName, PlanTable } from '../../limiter/plans.ts';
export { FIELD_NAMES, fieldsOf, PLAN_FIELDS, PLAN_NAMES, whenAbsent };

type Name = (typeof FIELD_NAMES)[number];

/** A typed value. Null for an empty text in place of a number that may be absent; undefined if it is not valid. */
export const typedValue = (field: Name, text: string): number | string | null | undefined =>
  text === '' && whenAbsent(field) !== undefined ? null : parseField(field, text);

/** The error of a typed value; undefined if it is valid. */
export const faultOfValue = (field: Name, text: string): string | undefined =>
  typedValue(field, text) === undefined
    ? `A whole number from ${leastOf(field)} to ${MAX_LIMIT.toLocaleString('en-US')}.`
    : undefined;
