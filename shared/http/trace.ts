import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

/** The trace that a request belongs to (W3C Trace Context), for logs and for the next service. */
export interface Trace {
  /** 32 hexadecimal digits. */
  readonly id: string;
  /** The caller's flags, as two hexadecimal digits. */
  readonly flags: string;
  /** Data of other vendors, passed on unchanged. */
  readonly state?: string | undefined;
}

/** Later versions may add fields after a hyphen; version 00 may not (§3.2.2.3 and §3.2.2.5 of the standard). */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NO_TRACE = '0'.repeat(32);
const NO_SPAN = '0'.repeat(16);
/** The known flags: sampled, and random trace id. The others are sent as 0 (§3.2.2.5). */
const KNOWN_FLAGS = 0b11;
const NOT_SAMPLED = '00';

/**
 * Everyone must pass on at least 512 characters of tracestate (§3.3.1.5). A longer or non-text value is dropped
 * completely.
 */
const TRACESTATE = /^[\t\x20-\x7e]{1,512}$/;

/** The trace of a request: the caller's if it is well-formed, otherwise a new one. */
export function traceOf({ headers: { traceparent, tracestate } }: IncomingMessage): Trace {
  if (traceparent === undefined) return beginTrace();
  const [, version, id, span, flags = '', more] = TRACEPARENT.exec(String(traceparent)) ?? [];
  if (id === undefined || id === NO_TRACE || span === NO_SPAN || version === 'ff') return beginTrace();
  if (version === '00' && more !== undefined) return beginTrace();
  const known = (Number.parseInt(flags, 16) & KNOWN_FLAGS).toString(16).padStart(2, '0');
  const state = String(tracestate ?? '');
  return { id, flags: known, state: TRACESTATE.test(state) ? state : undefined };
}

/** Starts a new trace. Later services decide whether to record it. */
export const beginTrace = (): Trace => ({ id: randomHex(32), flags: NOT_SAMPLED });

/** Headers for the next service, as a flat list: the same trace, with this request as the parent. */
export function traceHeaders({ id, flags, state }: Trace): string[] {
  const traceparent = `00-${id}-${randomHex(16)}-${flags}`;
  return state === undefined ? ['traceparent', traceparent] : ['traceparent', traceparent, 'tracestate', state];
}

const POOL_BYTES = 8_192;
let pool = '';
let used = 0;

/** Random digits, drawn in bulk: a few cost as much as thousands. */
function randomHex(digits: number): string {
  if (used + digits > pool.length) {
    pool = randomBytes(POOL_BYTES).toString('hex');
    used = 0;
  }
  used += digits;
  return pool.slice(used - digits, used);
}
