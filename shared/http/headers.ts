import { hash, randomUUID, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

/** Header rules for every hop. Names are in lower case. */

/** For one connection only, so never forwarded (RFC 9110 §7.6.1; the older names from RFC 2616 §13.5.1). */
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

/** On every answer: browsers must not guess another type (Fetch §3.6). */
export const NO_SNIFF = ['X-Content-Type-Options', 'nosniff'] as const;

/** Of a request id that the gateway accepts from a client. */
export const MAX_REQUEST_ID_LENGTH = 64;
/** Of one that a service accepts: with the gateway's attempt, a dot, six characters and up to 16 digits. */
const REQUEST_ID = /^[\w.-]{1,87}$/;

/** The request's id: the caller's X-Request-Id if it is safe for logs and headers, otherwise a new one. */
export function requestIdOf({ headers }: IncomingMessage, isFit: (id: string) => boolean = () => true): string {
  const given = headers['x-request-id'];
  return typeof given === 'string' && REQUEST_ID.test(given) && isFit(given) ? given : randomUUID();
}

/** A key that a client gives to a POST so that it can repeat it (draft-ietf-httpapi-idempotency-key-header). */
export const IDEMPOTENCY_KEY = 'idempotency-key';
export const MAX_IDEMPOTENCY_KEY_LENGTH = 255;

/** Tells the core who sent the request: the public part of an API key. It is never taken from a client. */
export const CALLER_ID = 'x-caller-id';

/** The scheme in any case, spaces, one token (`1*SP`, RFC 6750 §2.1, RFC 9110 §11.4). */
const BEARER = /^bearer +([\w.~+/=-]+)$/i;

/** The token of an Authorization header, never empty; undefined if there is none. */
export function bearerToken(authorization: string | undefined): string | undefined {
  return authorization === undefined ? undefined : BEARER.exec(authorization)?.[1];
}

/**
 * Whether an Authorization header carries one of these tokens. All are compared, each in constant time. A header
 * without a token never matches, and neither does an empty expected token, or none.
 */
export function carriesToken(authorization: string | undefined, expected: readonly string[]): boolean {
  const presented = bearerToken(authorization);
  if (presented === undefined) return false;
  // Digests have equal lengths. timingSafeEqual throws on unequal ones.
  const digest = hash('sha256', presented, 'buffer');
  let isOne = false;
  for (const one of expected) isOne = (one !== '' && timingSafeEqual(digest, hash('sha256', one, 'buffer'))) || isOne;
  return isOne;
}
