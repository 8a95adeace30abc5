/** How many entries a page of a list has: what `limit` may be, and what it is where it is left out. */
export const MAX_LIMIT = 100;
export const DEFAULT_LIMIT = 20;
