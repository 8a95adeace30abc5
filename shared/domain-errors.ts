/**
 * What the parts below HTTP throw: the limiter, the stores of keys and plans, the core's store. `toHttpError` (errors.ts) is the
 * one place that knows the status of each.
 */

/** Something that is needed is away. It may be worth another try. The cause is logged, and never sent. */
export class Unavailable extends Error {
  /** @param reason what really happened, in words or as it was thrown */
  constructor(reason: unknown) {
    super(reason instanceof Error ? reason.message : String(reason), reason instanceof Error ? { cause: reason } : {});
  }
}

/** What is asked conflicts with what is stored. The message is public. */
export class Conflict extends Error {}
