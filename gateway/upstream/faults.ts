import { HttpError } from '../../shared/errors.ts';
import { ClientGone, CoreRefusedUs, CoreTooSlow } from './relay.ts';
import { AnswerTooLarge } from './whole-relay.ts';

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

/** Whether the request certainly never reached the core, so that another may be asked. */
export function neverArrived(cause: unknown): boolean {
  const code = (cause as { code?: string }).code ?? '';
  return (
    code === 'ECONNREFUSED' || code === 'UND_ERR_CONNECT_TIMEOUT' || code === 'EHOSTUNREACH' || code === 'ENOTFOUND'
  );
}

/**
 * Whether a connection failed a request: it broke, or brought what is no answer. Another may do better. A core that is slow,
 * a client that left and a token that is wrong would be the same anywhere.
 */
export function isConnectionFault(cause: unknown): boolean {
  if (cause instanceof HttpError) return false;
  const { code = '', name } = cause as { code?: string; name?: string };
  if (TOO_SLOW.has(code)) return false;
  return neverArrived(cause) || code.startsWith('UND_ERR_') || BROKEN.has(code) || name === 'HTTPParserError';
}

const BROKEN: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE']);
