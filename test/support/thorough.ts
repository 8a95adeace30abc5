/** How often, or how long, something is tried: all of it with THOROUGH=1, as CI does, and a part of it at a desk. */
export const thoroughly = (whole: number, part: number): number => (process.env.THOROUGH === '1' ? whole : part);
