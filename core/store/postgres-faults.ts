/** What a fault of PostgreSQL, or of the way to it, means. Whatever is not listed here is a fault of ours. */

/** PostgreSQL ends, or the connection does: classes of codes (appendix A of its manual). */
const LOST_CLASSES = ['08', '57P'];

/** Of the system, before or while a connection is open. */
const LOST_CODES: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
]);

/** What pg says in words only. After a query that it gave up, an answer may still come on that connection. */
const LOST_MESSAGES: ReadonlySet<string> = new Set([
  'Connection terminated',
  'Connection terminated unexpectedly',
  'Connection terminated due to connection timeout',
  'Client was closed and is not queryable',
  'Client has encountered a connection error and is not queryable',
  'Query read timeout',
]);

/**
 * The statement failed for what PostgreSQL has not got now: disk, memory or connections (53), time (57014, 55P03), a disk that
 * works (58), or the right to write, as a replica (25006).
 */
const WITHOUT_MEANS = /^(53...|58...|57014|55P03|25006)$/;

/** PostgreSQL asks for these transactions to be run again (serialization failure, deadlock). */
const RUN_AGAIN: ReadonlySet<string> = new Set(['40001', '40P01']);

export const LOCK_NOT_AVAILABLE = '55P03';

/** Whether the connection is of no use any more. */
export function isConnectionLost(fault: unknown): boolean {
  const code = codeOf(fault);
  if (code === '') return fault instanceof Error && LOST_MESSAGES.has(fault.message);
  return LOST_CODES.has(code) || LOST_CLASSES.some((beginning) => code.startsWith(beginning));
}

/** Whether another try in a while may do better. */
export const isUnavailable = (fault: unknown): boolean => isConnectionLost(fault) || WITHOUT_MEANS.test(codeOf(fault));

export const isToBeRunAgain = (fault: unknown): boolean => RUN_AGAIN.has(codeOf(fault));

export const codeOf = (fault: unknown): string => (fault as NodeJS.ErrnoException | undefined)?.code ?? '';
