/** The meaning of PostgreSQL's faults and connection faults. Any other fault is one of the core itself. */

/** Codes of a shutdown or a lost connection, by their first characters (appendix A of PostgreSQL's manual). */
const LOST_CLASSES = ['08', '57P'];

/** System codes of faults before or while a connection is open. */
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

/** Faults of pg without a code. After a query timeout, the answer may still arrive on that connection. */
const LOST_MESSAGES: ReadonlySet<string> = new Set([
  'Connection terminated',
  'Connection terminated unexpectedly',
  'Connection terminated due to connection timeout',
  'timeout expired',
  'Client was closed and is not queryable',
  'Client has encountered a connection error and is not queryable',
  'Query read timeout',
]);

/**
 * The statement failed because PostgreSQL currently lacks something: disk, memory or connections (53), time (57014,
 * 55P03), a working disk (58), or write access, as on a replica (25006).
 */
const WITHOUT_MEANS = /^(53...|58...|57014|55P03|25006)$/;

/** PostgreSQL asks to run these transactions again (serialization failure, deadlock). */
const RUN_AGAIN: ReadonlySet<string> = new Set(['40001', '40P01']);

export const LOCK_NOT_AVAILABLE = '55P03';

/** Wrong password, unknown user, or not allowed from here. */
const PASSWORD_REFUSED: ReadonlySet<string> = new Set(['28P01', '28000']);

/** PostgreSQL accepted the connection but did not answer in time, so it can be reached. */
export class PostgresSilent extends Error {
  constructor() {
    super('PostgreSQL accepted the connection and did not answer in time.');
  }
}

/** PostgreSQL answers, but is short of time, memory or connections. */
const SHORT = /^(53...|57014|55P03)$/;

/** Whether the database is slow or busy, as opposed to out of reach or refusing the core. */
export const isSlow = (fault: unknown): boolean =>
  fault instanceof PostgresSilent ||
  SHORT.test(codeOf(fault)) ||
  (fault instanceof Error && fault.message === 'Query read timeout');

export const isPasswordRefused = (fault: unknown): boolean => PASSWORD_REFUSED.has(codeOf(fault));

/** Whether the connection can no longer be used. */
export function isConnectionLost(fault: unknown): boolean {
  const code = codeOf(fault);
  if (code === '') return fault instanceof Error && LOST_MESSAGES.has(fault.message);
  return LOST_CODES.has(code) || LOST_CLASSES.some((beginning) => code.startsWith(beginning));
}

/** Whether a later retry may succeed. */
export const isUnavailable = (fault: unknown): boolean => isConnectionLost(fault) || WITHOUT_MEANS.test(codeOf(fault));

export const isToBeRunAgain = (fault: unknown): boolean => RUN_AGAIN.has(codeOf(fault));

export const codeOf = (fault: unknown): string => (fault as NodeJS.ErrnoException | undefined)?.code ?? '';
