import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { HttpError } from './errors.ts';

/** Header rules that every hop of ours keeps. Names are lower case. */

/** Meant for one connection only, so never passed on (RFC 9110 §7.6.1; the older names from RFC 2616 §13.5.1). */
export const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authentication-info',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** What an id must look like to be continued. */
export const REQUEST_ID = /^[\w.-]{1,64}$/;

/** The request's id: its caller's X-Request-Id where that is fit for our logs and headers, a new one otherwise. */
export function requestIdOf({ headers }: IncomingMessage, isFit: (id: string) => boolean = () => true): string {
  const given = headers['x-request-id'];
  return typeof given === 'string' && REQUEST_ID.test(given) && isFit(given) ? given : randomUUID();
}

/** A key that its sender gives to a POST, so that it may send it again (draft-ietf-httpapi-idempotency-key-header). */
export const IDEMPOTENCY_KEY = 'idempotency-key';
export const MAX_IDEMPOTENCY_KEY_LENGTH = 255;

/** Whose request it is, as the gateway tells the core: the public part of an API key. Never taken from a client. */
export const CALLER_ID = 'x-caller-id';

/**
 * Header lines that a server of ours keeps. Node drops further ones silently, so whoever reads headers refuses a request
 * with fewer than that: nothing that was dropped can have been meant.
 */
export const KEPT_HEADER_LINES = 200;

/** @throws {HttpError} 431 for more than `most` header lines, which must be below KEPT_HEADER_LINES */
export function checkHeaderLines(
  rawHeaders: readonly string[],
  most: number,
  headers: { headers?: string[] } = {},
): void {
  if (rawHeaders.length <= 2 * most) return;
  throw new HttpError('headers_too_large', `The request has more than ${most} header lines.`, headers);
}
