/** Entries per page of a list: the maximum of `limit`, and its default. */
export const MAX_PAGE_SIZE = 100;
export const DEFAULT_PAGE_SIZE = 20;
