/**
 * Errors of the layers below HTTP: the limiter, the stores of keys and plans, the core's store. Only `toHttpError`
 * (errors.ts) knows their status codes.
 */

/** A dependency is unavailable. A retry may succeed. The cause is logged and never sent. */
export class Unavailable extends Error {
  /** @param reason the original fault: a text or the thrown value */
  constructor(reason: unknown) {
    super(reason instanceof Error ? reason.message : String(reason), reason instanceof Error ? { cause: reason } : {});
  }
}

/** The request conflicts with stored data. The message is public. */
export class Conflict extends Error {}
