import { Unavailable } from '../../shared/domain-errors.ts';
import { type Level, refill } from './bucket.ts';
import type { Bounds, Credential, Rejection } from './credential.ts';
import type { PlanName } from './plans.ts';

/** Decides requests: which key it is, whether it is banned, and what its buckets still allow. */
export interface Limiter {
  /** @throws {StoreUnavailable} if there is no decision */
  decide(credential: Credential): Promise<Verdict>;
  /**
   * The verdict of a decision, but nothing is taken, counted or written.
   * @throws {StoreUnavailable} if there is none
   */
  peek(credential: Credential): Promise<Verdict>;
}

/** A decision that a request waits for. */
export interface Question {
  readonly credential: Credential;
  /** False once nobody waits any longer. A question that was not sent by then is never sent. */
  readonly isOpen: boolean;
  /** Called also when nobody waits any longer. */
  answered(verdict: Verdict): void;
  /**
   * A deadline has passed. It may have been charged if it was sent. Called again at every further deadline, while it is
   * open.
   */
  late(wasSent: boolean): void;
  /** No answer will come. @param mayHaveRun whether it may have been charged */
  failed(fault: StoreUnavailable, mayHaveRun: boolean): void;
}

/** A limiter that can be slow. */
export interface RemoteLimiter extends Limiter {
  ask(question: Question): void;
}

/**
 * The store cannot be reached. For a decision: it may have been charged. Redis faults are given in words only: a command
 * contains digests, and the library's error can contain the command.
 */
export class StoreUnavailable extends Unavailable {}

/** One bucket after a decision. */
export interface BucketState extends Level {
  readonly name: 'minute' | 'day' | 'address';
  readonly limit: number;
  readonly window: number;
}

/** The limit status of a client. Everything that is reported to a client about its limits is derived from it. */
export interface LimitStatus {
  /** Forbidden: the secret does not allow this operation. Nothing was taken. */
  readonly outcome: 'admitted' | 'refused' | 'banned' | 'forbidden';
  readonly now: number;
  readonly buckets: readonly BucketState[];
  /** The end of the running ban. Meaningless unless banned. */
  readonly bannedUntil: number;
  /** The place in line of a refused request. */
  readonly retryAt?: number | undefined;
  /** Whether a refusal would have banned a key: for an address, it closes the connection. */
  readonly closesConnection?: boolean;
}

/** The same status after so many microseconds. */
export function later<Status extends LimitStatus>(status: Status, elapsed: number): Status {
  const buckets = status.buckets.map((bucket) => ({
    ...bucket,
    ...refill(bucket, bucket.limit, bucket.window, elapsed),
  }));
  return { ...status, now: status.now + elapsed, buckets };
}

/** The message to a client without a decision. */
export const NO_DECISION =
  'The limits of this API key cannot be checked: the store of the gateway does not answer. Retry after the time in Retry-After.';

/** The decision on a request with a known key. */
export interface Decision extends LimitStatus {
  readonly plan: PlanName;
  /** Which limits are the key's own. The others are its plan's. */
  readonly own: { readonly minute: boolean; readonly day: boolean };
  /** Whether the running ban is an operator's, which binds in shadow mode too. */
  readonly isBannedByOperator: boolean;
  /** When the credential ends, as far as is known: with the key or with its secret. 0 for never. */
  readonly endsAt: number;
  /** The bounds of the secret; undefined for an unbound one. */
  readonly bounds?: Bounds | undefined;
  /** Local: Redis was away, and the decision was taken here from its last one. */
  readonly mode: 'shared' | 'local';
  /** It was admitted because its plan is in shadow mode. Otherwise it would have been refused. */
  readonly isShadowed?: boolean;
  /** Fields of the key without a usable number. The plan's limits are used instead. */
  readonly rejected: string;
}

/** The key is not valid, or not from this address. The reason is only for the log; it is never sent to the client. */
export interface Unauthorized extends Omit<Rejection, 'reason'> {
  readonly outcome: 'unauthorized';
  readonly reason: 'malformed' | Rejection['reason'];
  /** Set if the decision was taken here, from the last one of Redis. */
  readonly mode?: 'local';
}

/** No decision is possible: the key's data has no usable limits, or is malformed. */
export interface Undecided {
  readonly outcome: 'undecided';
  readonly reason: 'misconfigured' | 'unreadable';
}

export type Verdict = Decision | Unauthorized | Undecided;
