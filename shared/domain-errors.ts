/**
 * Errors of the layers below HTTP: the limiter, the key and plan stores, the core's store. Only `toHttpError`
 * (errors.ts) knows their status codes.
 */

export class Unavailable extends Error {
  /** The public message about the fault; undefined for the default one. */
  readonly shown: string | undefined;

  /**
   * @param reason the original fault: a string or the thrown value
   * @param shown the public message, in place of the default one
   */
  constructor(reason: unknown, shown?: string) {
    super(reason instanceof Error ? reason.message : String(reason), reason instanceof Error ? { cause: reason } : {});
    this.shown = shown;
  }
}

/** A change may or may not have been made. */
export class OutcomeUnknown extends Unavailable {
  constructor(reason: unknown) {
    super(reason, 'It is not known whether the change was made. Check before you repeat the request.');
  }
}

/** The request conflicts with stored data. The message is public. */
export class Conflict extends Error {}
