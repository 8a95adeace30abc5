import type { RejectedValue } from '../../limiter/plans.ts';

/** The number of values that are shown, and of characters of each. People can write anything into the table. */
const MOST_REJECTED = 100;
const MOST_CHARACTERS = 100;

/** The values in the plan table that are not in force, cut to a length that fits in the answer. */
export const shownRejected = (rejected: readonly RejectedValue[]): RejectedValue[] =>
  rejected.slice(0, MOST_REJECTED).map(({ field, value, kept }) => ({
    field: field.slice(0, MOST_CHARACTERS),
    value: value?.slice(0, MOST_CHARACTERS),
    kept,
  }));
