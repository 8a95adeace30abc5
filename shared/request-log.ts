import type { HttpError } from './errors.ts';
import type { Logger } from './logger.ts';

/** A longer path is none of ours, and would make a line too long to be written in one piece. */
export const MAX_LOGGED_PATH = 1_024;

/** What the line of a request has in every service; a service adds fields of its own. */
export interface RequestLine {
  readonly requestId: string;
  readonly traceId: string;
  readonly status: number;
  readonly code: string | undefined;
}

/** What a line is about, beside its fields. */
interface About {
  readonly message: string;
  /** The error that was answered. */
  readonly error: HttpError | undefined;
  /** Whether it is asked again and again by machines, so that nobody wants to read of it when it went well. */
  readonly isRoutine?: boolean | undefined;
}

/** Writes the one line that a request leaves. Every failure has its cause: `err` with the stack where it is unknown, `reason` else. */
export function logRequest(logger: Logger, line: RequestLine, { message, error, isRoutine }: About): void {
  if (error?.code === 'internal_error') logger.error({ ...line, err: error.cause }, message);
  else if (error?.cause !== undefined || line.status >= 500)
    logger.warn({ ...line, reason: reasonOf(error?.cause ?? error?.message ?? ANSWERED_BY_CORE) }, message);
  else if (isRoutine) logger.debug(line, message);
  else logger.info(line, message);
}

/** The only failure without an error of ours. */
const ANSWERED_BY_CORE = 'The core answered so; its log says why.';

/** Milliseconds since a moment of performance.now(), as they are logged. */
export const millisecondsSince = (startedAt: number): number =>
  Math.round((performance.now() - startedAt) * 1_000) / 1_000;

/** A known fault in one line, down to its root; a stack would tell nothing more. */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const message = cause.message || (cause as NodeJS.ErrnoException).code || cause.name;
  return cause.cause instanceof Error ? `${message} ${reasonOf(cause.cause)}` : message;
}
