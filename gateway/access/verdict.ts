import type { Level } from './bucket.ts';
import type { PlanName } from './plans.ts';

/** Time is Unix time in microseconds, and so are lengths of time, unless a name says otherwise. */
export const SECOND = 1_000_000;
export const MINUTE = 60 * SECOND;
export const DAY = 86_400 * SECOND;

/** One bucket of a caller as a decision left it. */
export interface BucketState extends Level {
  readonly name: 'minute' | 'day' | 'address';
  readonly limit: number;
  readonly window: number;
}

/** Where a caller stands: all that a client is told about its limits is derived from this. */
export interface LimitStatus {
  readonly outcome: 'admitted' | 'refused' | 'banned';
  readonly now: number;
  readonly buckets: readonly BucketState[];
  /** End of the running ban; of no meaning unless banned. */
  readonly bannedUntil: number;
  /** When a refused request is told to come again; undefined where nobody queues, as for an address. */
  readonly retryAt?: number | undefined;
}

/** The decision about a request whose key is known. */
export interface Decision extends LimitStatus {
  readonly plan: PlanName;
  /** When the credential ends, as far as is known: with the key, or with its secret's grace. 0 for never. */
  readonly endsAt: number;
  /** Local: Redis was away, and the decision was taken here from what it last said. */
  readonly mode: 'shared' | 'local';
  /** It went through, as its plan is in shadow mode, and would have been refused. */
  readonly isShadowed?: boolean;
  /** Fields of the key that hold no usable number; the plan's own limits took their place. */
  readonly rejected: string;
}

/** The key opens nothing. Which of the reasons it was is for the log; the client is never told. */
export interface Unauthorized {
  readonly outcome: 'unauthorized';
  readonly reason: 'malformed' | 'unknown' | 'disabled' | 'expired';
  /** Set where the decision was taken here, from what Redis last said. */
  readonly mode?: 'local';
}

/** No decision is possible: the key's data has no usable limits, or is not what a key's data looks like. */
export interface Undecided {
  readonly outcome: 'undecided';
  readonly reason: 'misconfigured' | 'unreadable';
}

export type Verdict = Decision | Unauthorized | Undecided;
