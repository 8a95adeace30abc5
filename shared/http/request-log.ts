import { type Logger, logInfoLine } from '../process/logger.ts';
import type { HttpError } from './errors.ts';

/** No path of the API is longer. Longer paths could make a log line too long for one atomic write. */
export const MAX_LOGGED_PATH = 1_024;

/** The fields that every service logs for a request. A service adds its own. */
interface RequestLine {
  readonly requestId: string;
  readonly traceId: string;
  readonly status: number;
  readonly code: string | undefined;
}

/**
 * Writes the log line of a request. Every failure includes its cause: `err` with the stack for unknown faults,
 * otherwise `reason`.
 * @param error the error in the answer
 * @param isRoutine whether machines send this request all the time, so that a success is logged at debug level only
 */
export function logRequest(
  logger: Logger,
  message: string,
  line: RequestLine,
  error: HttpError | undefined,
  isRoutine = false,
): void {
  if (error?.code === 'internal_error') logger.error({ ...line, err: error.cause }, message);
  else if (line.status >= 500)
    logger.warn({ ...line, reason: reasonOf(error?.cause ?? error?.message ?? ANSWERED_BY_CORE) }, message);
  else if (error?.cause !== undefined) logger.info({ ...line, reason: reasonOf(error.cause) }, message);
  else if (isRoutine) logger.debug(line, message);
  else logInfoLine(logger, line, message);
}

/** The reason for a failure that is not an error of the gateway. */
const ANSWERED_BY_CORE = 'The core sent this response. Its log shows why.';

/** Milliseconds since a time of performance.now(), rounded for the log. */
export const millisecondsSince = (startedAt: number): number =>
  Math.round((performance.now() - startedAt) * 1_000) / 1_000;

/** A known fault in one line, down to its root cause. A stack would add nothing. */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const message = cause.message || (cause as NodeJS.ErrnoException).code || cause.name;
  return cause.cause instanceof Error ? `${message} ${reasonOf(cause.cause)}` : message;
}
