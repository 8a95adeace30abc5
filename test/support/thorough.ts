/** How often or how long to try something. Returns `whole` with THOROUGH=1, as in CI, and `part` otherwise. */
export const thoroughly = (whole: number, part: number): number => (process.env.THOROUGH === '1' ? whole : part);
