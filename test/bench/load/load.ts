import type { Ask } from './asks.ts';

/** A load on one contender, and what came of it. */

export interface Load {
  /** Of the contender, without a path. */
  readonly url: string;
  readonly connections: number;
  readonly seconds: number;
  /** They take turns. */
  readonly asks: readonly Ask[];
}

export interface LoadResult {
  readonly requests: number;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Answers other than 2xx and 3xx. */
  readonly refused: number;
  /** Requests that had no answer. */
  readonly failures: number;
}

/** The line of JSON that a load generator ends with. */
export function readResult(out: string): LoadResult {
  const line = out.split('\n').findLast((text) => text.startsWith('{'));
  if (line === undefined) throw new Error(`The load generator reported nothing: ${out}`);
  return JSON.parse(line) as LoadResult;
}
