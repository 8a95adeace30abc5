import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

/** What a request belongs to across services (W3C Trace Context), for logs and for the next service. */
export interface Trace {
  /** 32 hexadecimal digits. */
  readonly id: string;
  /** What its caller said of it, as two hexadecimal digits. */
  readonly flags: string;
  /** What others have to tell each other about it; only ever passed on. */
  readonly state?: string | undefined;
}

/** Later versions may say more behind a hyphen; the first says no more than this (§3.2.2.3 and §3.2.2.5 of the standard). */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NO_TRACE = '0'.repeat(32);
const NO_SPAN = '0'.repeat(16);
/** Sampled, and random trace id: those that have a meaning. The others are sent as 0 (§3.2.2.5). */
const KNOWN_FLAGS = 0b11;
const NOT_SAMPLED = '00';

/** So many characters of tracestate are passed on by everybody (§3.3.1.5); one that is longer, or no text, is dropped whole. */
const TRACESTATE = /^[\t\x20-\x7e]{1,512}$/;

/** The trace that a request belongs to: its caller's, where that has the form of one, or else one that begins here. */
export function traceOf({ headers: { traceparent, tracestate } }: IncomingMessage): Trace {
  if (traceparent === undefined) return beginTrace();
  const [, version, id, span, flags = '', more] = TRACEPARENT.exec(String(traceparent)) ?? [];
  if (id === undefined || id === NO_TRACE || span === NO_SPAN || version === 'ff') return beginTrace();
  if (version === '00' && more !== undefined) return beginTrace();
  const known = (Number.parseInt(flags, 16) & KNOWN_FLAGS).toString(16).padStart(2, '0');
  const state = String(tracestate ?? '');
  return { id, flags: known, state: TRACESTATE.test(state) ? state : undefined };
}

/** Whether anybody records it is for those to say who do. */
export const beginTrace = (): Trace => ({ id: randomHex(32), flags: NOT_SAMPLED });

/** For the next service, as a flat list: the trace, and this request as the caller there. */
export function traceHeaders({ id, flags, state }: Trace): string[] {
  const traceparent = `00-${id}-${randomHex(16)}-${flags}`;
  return state === undefined ? ['traceparent', traceparent] : ['traceparent', traceparent, 'tracestate', state];
}

const POOL_BYTES = 8_192;
let pool = '';
let used = 0;

/** Random digits, drawn many at a time: to ask for a few costs as much as for thousands. */
function randomHex(digits: number): string {
  if (used + digits > pool.length) {
    pool = randomBytes(POOL_BYTES).toString('hex');
    used = 0;
  }
  used += digits;
  return pool.slice(used - digits, used);
}
