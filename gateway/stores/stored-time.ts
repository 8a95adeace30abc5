import { SECOND } from '../limiter/bucket.ts';

/** A time is stored as decimal Unix seconds, so that people can read it. */

export const writeTime = (time: number | undefined): string | undefined =>
  time === undefined ? undefined : (time / SECOND).toFixed(6);

/** Reads a time as decide.lua does. */
export function readTime(text: string | undefined): number | undefined {
  if (text === undefined || text.length > LONGEST_TIME || !/^\d+\.?\d*$/.test(text)) return undefined;
  return Number(text) < LATEST_TIME ? Math.round(Number(text) * SECOND) : undefined;
}

const LONGEST_TIME = 24;
const LATEST_TIME = 1e10;
