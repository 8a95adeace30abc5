import { HttpError } from '../../shared/errors.ts';

/** How asking a core can go wrong, and what each way means. */

/** No answer in time. */
export class CoreTooSlow extends Error {
  override readonly message = 'No answer in time.';
}

/** The client left before its answer was complete. Nobody else is to blame. */
export class ClientGone extends Error {
  override readonly message = 'The client went away.';
}

/** Clients' keys are settled before anything is forwarded; what the core refuses is our own token. */
export class CoreRefusedUs extends Error {
  constructor(status: number) {
    super(`The core answered ${status}: CORE_TOKEN is not the one that it asks for.`);
  }

  static saysSo(status: number): boolean {
    return status === 401 || status === 403;
  }
}

/** An answer that ends where its connection does: one that broke off would look whole. */
export class EndUnknown extends Error {
  override readonly message = 'The core answered with neither a length nor chunks.';
}

/** It is no answer, or not certainly the one that it seems. */
export class Unreadable extends Error {
  constructor(why: string) {
    super(`The core's answer cannot be read. ${why}`);
  }
}

/** The connection ended before the answer came. */
export class ConnectionLost extends Error {
  override readonly message = 'The connection was lost.';
}

/** The answer belongs to another request: it carries another id, or none where it must have one. */
export class WrongAnswer extends Error {
  override readonly message = 'The answer is not to the request that was asked.';
}

/** The answer is one to be streamed: nothing of it was passed on, so it can be asked for again. */
export class AnswerTooLarge extends Error {
  /** Where it ends in what it was read from; undefined where that cannot be told. */
  readonly end: number | undefined;

  constructor(end: number | undefined) {
    super('The answer is too large to be taken whole.');
    this.end = end;
  }
}

/** What the client is told when the core fails, by the code of what happened; everything else is a bad gateway. */
export function upstreamFault(cause: unknown): HttpError {
  if (cause instanceof HttpError) return cause;
  return new HttpError(isTooSlow(cause) ? 'gateway_timeout' : 'bad_gateway', undefined, { cause });
}

function isTooSlow(cause: unknown): boolean {
  const code = (cause as { code?: string }).code ?? '';
  return cause instanceof CoreTooSlow || TOO_SLOW.has(code) || code === 'UND_ERR_CONNECT_TIMEOUT';
}

/** How a core can fail a request, for those who count; `full`: it was asked for so much that this was not sent. */
export const FAULT_KINDS = ['broken', 'timeout', 'unreachable', 'token', 'full'] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** Undefined where the core did not fail: its client left, or its answer is one to be streamed. */
export function faultKind(cause: unknown): FaultKind | undefined {
  if (cause instanceof ClientGone || cause instanceof AnswerTooLarge) return undefined;
  if (cause instanceof HttpError) return 'full';
  if (cause instanceof CoreRefusedUs) return 'token';
  if (neverArrived(cause)) return 'unreachable';
  return isTooSlow(cause) ? 'timeout' : 'broken';
}

const TOO_SLOW: ReadonlySet<string> = new Set(['UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT']);

/** Whether the request certainly never reached the core, so that another may be asked: no connection was made. */
export function neverArrived(cause: unknown): boolean {
  const { code = '', syscall, errors } = cause as { code?: string; syscall?: string; errors?: unknown[] };
  if (Array.isArray(errors) && errors.length > 0) return errors.every(neverArrived);
  // EHOSTUNREACH alone tells nothing: it can end a connection that was well.
  return code === 'UND_ERR_CONNECT_TIMEOUT' || syscall === 'connect' || syscall === 'getaddrinfo';
}

/**
 * Whether a connection failed a request: it broke, or brought what is no answer. Another may do better. A core that is slow,
 * a client that left and a token that is wrong would be the same anywhere.
 */
export function isConnectionFault(cause: unknown): boolean {
  if (cause instanceof HttpError) return false;
  if (cause instanceof ConnectionLost || cause instanceof Unreadable || cause instanceof WrongAnswer) return true;
  const { code = '', name } = cause as { code?: string; name?: string };
  if (TOO_SLOW.has(code)) return false;
  return neverArrived(cause) || code.startsWith('UND_ERR_') || BROKEN.has(code) || name === 'HTTPParserError';
}

const BROKEN: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH']);
