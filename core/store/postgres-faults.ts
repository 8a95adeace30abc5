import { OutcomeUnknown } from '../../shared/domain-errors.ts';

/** Classifies PostgreSQL and connection faults. Any other fault is a bug in the core. */

/** The first characters of the SQLSTATE codes for a shutdown or a lost connection (PostgreSQL's manual, appendix A). */
const LOST_CLASSES = ['08', '57P'];

/** System error codes for faults that occur while a connection is opened or used. */
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

/** Errors from pg without a code. After a query timeout, the result may still arrive on the connection. */
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

/** Transactions with these faults must be run again (serialization failure, deadlock). */
const RUN_AGAIN: ReadonlySet<string> = new Set(['40001', '40P01']);

export const LOCK_NOT_AVAILABLE = '55P03';
export const READ_ONLY = '25006';

/** Wrong password, unknown user, or a host that is not allowed. */
export const PASSWORD_REFUSED: ReadonlySet<string> = new Set(['28P01', '28000']);

/** PostgreSQL accepted the connection but did not answer in time, so it can be reached. */
export class PostgresSilent extends Error {
  constructor() {
    super('PostgreSQL accepted the connection but did not answer in time.');
  }
}

/** PostgreSQL answers, but is short of time, memory or disk. */
const SHORT = /^(53(?!300)...|57014|55P03)$/;

/** Whether the database is slow or busy, rather than unreachable or refusing the core. */
export const isSlow = (fault: unknown): boolean =>
  fault instanceof PostgresSilent ||
  SHORT.test(codeOf(fault)) ||
  (fault instanceof Error && fault.message === 'Query read timeout');

/** The password was refused while it was being changed, so that another attempt may use one that is accepted. */
export class PasswordOutdated extends Error {
  constructor(cause: unknown) {
    super((cause as Error).message, { cause });
  }
}

export const isPasswordOutdated = (fault: unknown): boolean => fault instanceof PasswordOutdated;

/** Whether the connection can no longer be used. */
export function isConnectionLost(fault: unknown): boolean {
  if (fault instanceof OutcomeUnknown) return true;
  const code = codeOf(fault);
  if (code === '') return fault instanceof Error && LOST_MESSAGES.has(fault.message);
  return LOST_CODES.has(code) || LOST_CLASSES.some((beginning) => code.startsWith(beginning));
}

/** Whether a later retry may succeed. */
export const isUnavailable = (fault: unknown): boolean =>
  isConnectionLost(fault) || isToBeRunAgain(fault) || WITHOUT_MEANS.test(codeOf(fault));

export const isToBeRunAgain = (fault: unknown): boolean => RUN_AGAIN.has(codeOf(fault));

export const codeOf = (fault: unknown): string => (fault as NodeJS.ErrnoException | undefined)?.code ?? '';
