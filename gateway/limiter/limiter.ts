import { Unavailable } from '../../shared/domain-errors.ts';
import { type Level, refill } from './bucket.ts';
import type { Bounds, Credential, Rejection } from './credential.ts';
import type { PlanName } from './plans.ts';

/** Decides requests: whether the key is valid, whether it is banned, and whether its buckets allow the request. */
export interface Limiter {
  decide(credential: Credential): Promise<Verdict>;
  /**
   * Returns the verdict of a decision, but takes, counts and writes nothing. @throws {StoreUnavailable} if no verdict
   * is possible
   */
  peek(credential: Credential): Promise<Verdict>;
}

/**
 * How a local decision is charged: the store must charge for it later; or not, because the store may already have done
 * so. A peek takes and counts nothing.
 */
export type LocalCharge = 'later' | 'not again' | 'peek';

/** Decides in place of the store. */
export interface LocalDecisions {
  /**
   * Decides without the store. Undefined if the key is not, or no longer, verified.
   * @throws {StoreUnavailable} if it is not known whether the key is verified
   */
  decide(credential: Credential, charge: LocalCharge): Verdict | undefined | Promise<Verdict | undefined>;
}

/** A decision that a request waits for. */
export interface Question {
  readonly credential: Credential;
  /** False once nobody waits for the decision. If the question has not been sent by then, it never will be. */
  readonly isOpen: boolean;
  /** Called even if nobody waits any longer. */
  answered(verdict: Verdict): void;
  /**
   * Called at every deadline that passes while the question is open.
   * @param wasSent whether the request may have been charged
   */
  late(wasSent: boolean): void;
  /** No answer will arrive. @param mayHaveRun whether the request may have been charged */
  failed(fault: StoreUnavailable, mayHaveRun: boolean): void;
}

/** A limiter whose verdict may arrive late. */
export interface RemoteLimiter extends Limiter {
  ask(question: Question): void;
}

/**
 * The store cannot be reached. A decision that fails with this error may have been charged. The message describes a
 * Redis fault in words. It never quotes the library's error, which can contain the command and thus digests.
 */
export class StoreUnavailable extends Unavailable {}

/** One bucket after a decision. */
export interface BucketState extends Level {
  readonly name: 'minute' | 'day' | 'address';
  readonly limit: number;
  readonly window: number;
}

/** The limit status of a client. Everything that a client sees of its limits is derived from this status. */
export interface LimitStatus {
  /** Forbidden: the secret lacks the scope, and nothing was taken. */
  readonly outcome: 'admitted' | 'refused' | 'banned' | 'forbidden';
  readonly now: number;
  readonly buckets: readonly BucketState[];
  readonly bannedUntil: number;
  /** The time at which a refused request may be retried: its place in line. */
  readonly retryAt?: number | undefined;
  /** Set if the refusal would have banned a key. An address cannot be banned, so its connection closes instead. */
  readonly closesConnection?: boolean;
}

/** The same status after `elapsed` microseconds. */
export function later<Status extends LimitStatus>(status: Status, elapsed: number): Status {
  const buckets = status.buckets.map((bucket) => ({
    ...bucket,
    ...refill(bucket, bucket.limit, bucket.window, elapsed),
  }));
  return { ...status, now: status.now + elapsed, buckets };
}

/** Why nothing can be decided until the first plan table has been read. */
export const NOT_READ = 'The plans have not been read yet.';

/** The error message for a client whose request could not be decided. */
export const NO_DECISION =
  "The limits of this API key cannot be checked: the gateway's key store does not answer. Retry after the time in Retry-After.";

/** The decision on a request with a known key. */
export interface Decision extends LimitStatus {
  readonly plan: PlanName;
  /** Which limits are the key's own. The plan sets the others. */
  readonly own: { readonly minute: boolean; readonly day: boolean };
  /** Whether the running ban is an operator's, which applies in shadow mode too. */
  readonly isBannedByOperator: boolean;
  /** When the key or the secret expires, whichever comes first, as far as known. 0 for never. */
  readonly endsAt: number;
  readonly bounds?: Bounds | undefined;
  /** Local: this gateway made the decision from the last known state, because Redis was unavailable. */
  readonly mode: 'shared' | 'local';
  /** Set if only shadow mode admitted the request. */
  readonly isShadowed?: boolean;
  /** Fields of the key without a usable value. The last good value or the plan's limit applies instead. */
  readonly rejected: string;
}

/** The key is not valid, or not allowed from this address. Only the log shows the reason; the client never sees it. */
export interface Unauthorized extends Omit<Rejection, 'reason'> {
  readonly outcome: 'unauthorized';
  readonly reason: 'malformed' | Rejection['reason'];
  /** Set if this gateway made the decision while Redis was unavailable. */
  readonly mode?: 'local';
}

/** No decision is possible: the key's data has no usable limits, or is malformed. */
export interface Undecided {
  readonly outcome: 'undecided';
  readonly reason: 'misconfigured' | 'unreadable';
}

export type Verdict = Decision | Unauthorized | Undecided;
