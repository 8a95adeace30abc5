import { Unavailable } from '../../shared/domain-errors.ts';
import type { Credential } from './credential.ts';
import type { Verdict } from './verdict.ts';

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
  /** @param isLate it came after the deadline */
  answered(verdict: Verdict, isLate: boolean): void;
  /**
   * A deadline has passed, but the answer may still come. Called again at every further deadline.
   * @param since when the missed time began, as of performance.now()
   */
  late(since: number): void;
  /** No answer will come. */
  failed(fault: StoreUnavailable): void;
}

/** A limiter that can be slow. */
export interface RemoteLimiter extends Limiter {
  ask(question: Question): void;
}

/**
 * Keys and plans cannot be reached. The failed decision may have been charged; the request is not admitted. The cause
 * is given in words only: the request sent contains digests, and a library's error can contain the request.
 */
export class StoreUnavailable extends Unavailable {}
