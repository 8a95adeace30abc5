import type { RejectedValue } from '../access/plans.ts';

/** So many are shown, and of each so many characters: a hand can put anything into the table. */
const MOST_REJECTED = 100;
const MOST_CHARACTERS = 100;

/** What the plan table holds that is not in force, cut to what an answer can hold. */
export const shownRejected = (rejected: readonly RejectedValue[]): RejectedValue[] =>
  rejected.slice(0, MOST_REJECTED).map(({ field, value, kept }) => ({
    field: field.slice(0, MOST_CHARACTERS),
    value: value?.slice(0, MOST_CHARACTERS),
    kept,
  }));
