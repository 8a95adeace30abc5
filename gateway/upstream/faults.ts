import { HttpError } from '../../shared/http/errors.ts';
import { foreignType } from './headers.ts';

/** The ways in which a request to a core can fail, and their meaning. */

export class CoreTooSlow extends Error {
  constructor(message = 'The core did not answer in time.') {
    super(message);
  }
}

/** OpenSSL's words for anything that is not TLS, for example an HTTP response. */
const NO_TLS = 'wrong version number';

/** No connection was made, so nothing was sent. Another core may then get the request, even a write. */
export class NotConnected extends Error {
  readonly isTooSlow: boolean;

  /** @param fault what the system, OpenSSL or the time limit reported */
  constructor(fault: NodeJS.ErrnoException) {
    // OpenSSL's messages end with a line feed, and those of several attempts have no text.
    const message = fault.message.includes(NO_TLS) ? 'The core does not speak TLS.' : fault.message.trim();
    super(message || fault.code || fault.name);
    this.isTooSlow = fault instanceof CoreTooSlow;
  }
}

/** The client disconnected before its response was complete. Neither the gateway nor the core is to blame. */
export class ClientGone extends Error {
  override readonly message = 'The client closed the connection.';
}

/** The core rejected our own token. Clients' keys cannot cause this, because they are checked before forwarding. */
export class CoreRefusedUs extends Error {
  constructor(status: number) {
    super(`The core answered ${status}: it does not accept CORE_TOKEN.`);
  }

  static saysSo(status: number): boolean {
    return status === 401 || status === 403;
  }
}

/** The response is an error that is not JSON, as proxies and other servers send it. */
export class NotJson extends Error {
  static readonly advice = 'CORE_URL may lead to something else than the core.';

  /** @param type its Content-Type */
  constructor(status: number, type: string) {
    super(`The core answered ${status} with ${type} instead of JSON: ${NotJson.advice}`);
  }
}

/** The response would end when its connection closes, so a truncated one would look complete. */
export class EndUnknown extends Error {
  override readonly message = 'The core responded with neither Content-Length nor chunked encoding.';
}

/** The bytes are not a valid response, or it is uncertain which request they belong to. */
export class Unreadable extends Error {
  constructor(why: string) {
    super(`The core's response cannot be read. ${why}`);
  }
}

export class ConnectionLost extends Error {
  override readonly message = 'The connection was lost.';
}

/** The response has another request's id, or lacks a required id. */
export class WrongAnswer extends Error {
  override readonly message = 'The response belongs to another request.';
}

/**
 * Why an error of a core must not reach the client, if so.
 * @param status at least 400
 * @param isEmpty whether it has no body
 */
export function faultIn(status: number, rawHeaders: readonly string[], isEmpty: boolean): Error | undefined {
  if (CoreRefusedUs.saysSo(status)) return new CoreRefusedUs(status);
  const type = foreignType(rawHeaders, isEmpty);
  return type === undefined ? undefined : new NotJson(status, type);
}

/** The error for the client when the core fails: the cause if it is an {HttpError}, 504 for a timeout, else 502. */
export function upstreamFault(cause: unknown): HttpError {
  if (cause instanceof HttpError) return cause;
  return new HttpError(isTooSlow(cause) ? 'gateway_timeout' : 'bad_gateway', undefined, { cause });
}

const isTooSlow = (cause: unknown): boolean =>
  cause instanceof CoreTooSlow || (cause instanceof NotConnected && cause.isTooSlow);

/**
 * The kinds of core failures in metrics. `full` means that the request was not sent because the core already had too
 * many.
 */
export const FAULT_KINDS = ['broken', 'timeout', 'unreachable', 'token', 'full'] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** Undefined if the client disconnected, because the core is not to blame then. */
export function faultKind(cause: unknown): FaultKind | undefined {
  if (cause instanceof ClientGone) return undefined;
  if (cause instanceof HttpError) return 'full';
  if (cause instanceof CoreRefusedUs) return 'token';
  if (cause instanceof NotConnected) return 'unreachable';
  return cause instanceof CoreTooSlow ? 'timeout' : 'broken';
}

/**
 * Whether another connection may succeed, because this one broke or did not carry a valid response. A slow core, a
 * client that disconnected or a wrong token would fail in the same way on any connection, and an error that is not JSON
 * at the same core.
 */
export function isOfConnection(cause: unknown, isOnlyCore: boolean): boolean {
  if (cause instanceof NotJson) return !isOnlyCore;
  if (cause instanceof HttpError) return false;
  if (cause instanceof ConnectionLost || cause instanceof Unreadable || cause instanceof WrongAnswer) return true;
  const { code = '' } = cause as { code?: string };
  return cause instanceof NotConnected || BROKEN.has(code);
}

const BROKEN: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH']);
