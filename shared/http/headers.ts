import { hash, randomBytes, randomUUID, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

/** Header rules for every hop. Names are in lower case. */

/** Every answer has this header: browsers must not guess another type (Fetch §3.6). */
export const NO_SNIFF = ['X-Content-Type-Options', 'nosniff'] as const;

/** The longest request id that the gateway accepts from a client. */
export const MAX_REQUEST_ID_LENGTH = 64;
/** A service accepts longer ids: the gateway appends a dot, six characters and up to 16 digits. */
const REQUEST_ID = /^[\w.-]{1,87}$/;

/** The request's id: the caller's X-Request-Id if it is safe for logs and headers, else a new one. */
export function requestIdOf({ headers }: IncomingMessage, isFit: (id: string) => boolean = () => true): string {
  const given = headers['x-request-id'];
  return typeof given === 'string' && REQUEST_ID.test(given) && isFit(given) ? given : randomUUID();
}

/** A key that makes a POST safe to repeat (draft-ietf-httpapi-idempotency-key-header). */
export const IDEMPOTENCY_KEY = 'idempotency-key';
export const MAX_IDEMPOTENCY_KEY_LENGTH = 255;

/**
 * Names the sender of a request to the core: the public part of an API key. The gateway never takes it from a client.
 */
export const CALLER_ID = 'x-caller-id';

/** The scheme in any case, then spaces, then one token (`1*SP`, RFC 6750 §2.1, RFC 9110 §11.4). */
const BEARER = /^bearer +([\w.~+/=-]+)$/i;

/** The token of an Authorization header, never empty; undefined if there is none. */
export function bearerToken(authorization: string | undefined): string | undefined {
  return authorization === undefined ? undefined : BEARER.exec(authorization)?.[1];
}

/**
 * Whether an Authorization header carries one of these tokens. Compares all of them, each in constant time. A missing
 * or empty token never matches, on either side.
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

/** The trace of a request (W3C Trace Context), for logs and for the next service. */
export interface Trace {
  /** 32 hexadecimal digits. */
  readonly id: string;
  /** The caller's flags, as two hexadecimal digits. */
  readonly flags: string;
  /** Data of other vendors, passed on unchanged. */
  readonly state?: string | undefined;
}

/** Later versions may add fields after a hyphen; version 00 must not (§3.2.2.3 and §3.2.2.5 of the standard). */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NO_TRACE = '0'.repeat(32);
const NO_SPAN = '0'.repeat(16);
/** The known flags: sampled, and random trace id. The others are sent as 0 (§3.2.2.5). */
const KNOWN_FLAGS = 0b11;
const NOT_SAMPLED = '00';

/**
 * Everyone must pass on at least 512 characters of tracestate (§3.3.1.5). A longer value, or one that is not text, is
 * dropped completely.
 */
const TRACESTATE = /^[\t\x20-\x7e]{1,512}$/;

/** The trace of a request: the caller's if it is well-formed, else a new one. */
export function traceOf({ headers: { traceparent, tracestate } }: IncomingMessage): Trace {
  if (traceparent === undefined) return beginTrace();
  const [, version, id, span, flags = '', more] = TRACEPARENT.exec(String(traceparent)) ?? [];
  if (id === undefined || id === NO_TRACE || span === NO_SPAN || version === 'ff') return beginTrace();
  if (version === '00' && more !== undefined) return beginTrace();
  const known = (Number.parseInt(flags, 16) & KNOWN_FLAGS).toString(16).padStart(2, '0');
  const state = String(tracestate ?? '');
  return { id, flags: known, state: TRACESTATE.test(state) ? state : undefined };
}

/** Starts a new trace. Later services decide whether to record the trace. */
export const beginTrace = (): Trace => ({ id: randomHex(32), flags: NOT_SAMPLED });

/** Headers for the next service, as a flat list: the same trace, with this request as the parent. */
export function traceHeaders({ id, flags, state }: Trace): string[] {
  const traceparent = `00-${id}-${randomHex(16)}-${flags}`;
  return state === undefined ? ['traceparent', traceparent] : ['traceparent', traceparent, 'tracestate', state];
}

const POOL_BYTES = 8_192;
let pool = '';
let used = 0;

/** Random digits. They are drawn in bulk, because a few cost as much as thousands. */
function randomHex(digits: number): string {
  if (used + digits > pool.length) {
    pool = randomBytes(POOL_BYTES).toString('hex');
    used = 0;
  }
  used += digits;
  return pool.slice(used - digits, used);
}
