import type { Answer } from './answer.ts';
import type { UpstreamRequest } from './request-head.ts';
import type { AnsweredSocket } from './streamed-answer.ts';

/** A request on a connection. The connection calls `answered`, `streamed` or `failed`, once. */
export interface Asked {
  readonly request: UpstreamRequest;
  /** The X-Request-Id of this attempt, which its answer repeats. */
  readonly id: string;
  /** False once nobody waits for the answer. */
  readonly isWanted: boolean;
  /** Whether it has the connection for itself, until it ends it. Only then is a large answer streamed. */
  readonly isAlone: boolean;
  /** @param now when it was read, as of performance.now() */
  answered(answer: Answer, now: number): void;
  /** The answer is too large to be taken whole. */
  streamed(socket: AnsweredSocket): void;
  failed(fault: unknown): void;
}
