/** How often or how long to try something: fully with THOROUGH=1, as in CI; otherwise partly. */
export const thoroughly = (whole: number, part: number): number => (process.env.THOROUGH === '1' ? whole : part);
