/**
 * Errors of the layers below HTTP: the limiter, the stores of keys and plans, the core's store. Only `toHttpError`
 * (errors.ts) knows their status codes.
 */

export class Unavailable extends Error {
  /** What the caller may learn about the fault; undefined for the usual message. */
  readonly shown: string | undefined;

  /**
   * @param reason the original fault: a text or the thrown value
   * @param shown the public message, in place of the usual one
   */
  constructor(reason: unknown, shown?: string) {
    super(reason instanceof Error ? reason.message : String(reason), reason instanceof Error ? { cause: reason } : {});
    this.shown = shown;
  }
}

/** The request conflicts with stored data. The message is public. */
export class Conflict extends Error {}
