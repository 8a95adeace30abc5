/** Entries per page of a list: the maximum of `limit`, and its default. */
export const MAX_LIMIT = 100;
export const DEFAULT_LIMIT = 20;
