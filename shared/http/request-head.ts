import { hash, randomBytes, randomUUID, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { listed } from '../lists.ts';
import { type ErrorCode, HttpError } from './errors.ts';

/**
 * The checks of a request's head that every server here makes. Node's parser accepts heads that another parser may read
 * differently (RFC 9112 §11.2). The end of such a request is uncertain, so its refusal closes the connection.
 */

/**
 * The fault in the bytes of a request, which will therefore never be complete. It is stored on the request itself,
 * because a map or another listener would add 4 % to the cost of a POST.
 */
export const FAULT = Symbol('fault of a request');
export type BrokenRequest = IncomingMessage & { [FAULT]?: HttpError };
/** A function that returns how many bytes of the body were read. It is stored on the request for the same reason. */
export const BODY_BYTES = Symbol('bytes of a body');
export type BegunRequest = IncomingMessage & { [BODY_BYTES]?: () => number };

/** The limits of a request's head. Node silently drops lines beyond KEPT_HEADER_LINES, so `lines` must be lower. */
export interface HeadLimits {
  readonly lines: number;
  /** The length of target, header names and values together. */
  readonly bytes: number;
}

/** The header values that the checks read from a request's head. */
interface CheckedHead {
  /** Undefined only in HTTP/1.0. */
  readonly host: string | undefined;
  /** Empty if there are two such headers, which count as an invalid credential. */
  readonly authorization: string | undefined;
}

/** The number of header lines that every server here keeps. */
export const KEPT_HEADER_LINES = 200;

/** The maximum number of options in all Connection headers, because every other header is compared with each option. */
const MAX_CONNECTION_OPTIONS = 16;

/** host [ ":" port ], with an IP literal in brackets (RFC 9110 §7.2). The length limit is that of DNS. */
const HOST = /^(?=.{1,259}$)(?:[\w.~!$&'()*+,;=-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/;

/** Whether a string is a valid Host value. */
export const isHost = (text: string): boolean => HOST.test(text);

/**
 * Headers that change how a request is handled. They must not occur twice: Node uses the first value or joins all
 * values, while other parsers use the last.
 */
const SINGLE: ReadonlySet<string> = new Set([
  'content-encoding',
  'content-length',
  'content-type',
  'expect',
  'host',
  'idempotency-key',
  'transfer-encoding',
]);

/** The lengths of the names that are read here, because comparing numbers is faster than comparing names. */
const LENGTHS_READ: ReadonlySet<number> = new Set(
  [...SINGLE, 'authorization', 'connection'].map(({ length }) => length),
);

const ABSOLUTE = /^https?:\/\/([^/?#]*)(.*)$/i;

/**
 * Converts the absolute form of a target to the origin form. Its authority must equal Host (RFC 9112 §3.2.2).
 * @param host undefined only in HTTP/1.0
 * @throws {HttpError} 400, which closes the connection
 */
export function originForm(target: string, host: string | undefined): string {
  if (target.startsWith('/')) return target;
  const [, authority, rest = ''] = ABSOLUTE.exec(target) ?? [];
  if (authority === undefined) return target;
  if (host !== undefined && authority.toLowerCase() !== host.toLowerCase())
    refuse('The request target and Host name different hosts.');
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/** @throws {HttpError} 400, 405, 408, 413, 417, 431 or 505, which closes the connection */
export function checkHead(request: BrokenRequest, limits: HeadLimits): CheckedHead {
  const { httpVersion, [FAULT]: fault } = request;
  if (fault !== undefined) throw fault;
  if (httpVersion !== '1.1' && httpVersion !== '1.0') refuse(undefined, 'http_version_not_supported');
  const head = readHeaders(request, limits);
  // HTTP/1.0 has no Host, and some health checks still use it (RFC 9112 §3.2).
  if (head.host === undefined ? httpVersion === '1.1' : !isHost(head.host)) {
    refuse('Exactly one well-formed Host header is required.');
  }
  checkFraming(request);
  return head;
}

function readHeaders({ url = '', rawHeaders }: IncomingMessage, { lines, bytes }: HeadLimits): CheckedHead {
  let host: string | undefined;
  let authorization: string | undefined;
  let length = url.length;
  let connectionOptions = 0;
  let seen: string[] | undefined;
  if (rawHeaders.length > 2 * lines) refuse(`The request has more than ${lines} header lines.`, 'headers_too_large');
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const header = rawHeaders[at] as string;
    const value = rawHeaders[at + 1] as string;
    length += header.length + value.length;
    if (!LENGTHS_READ.has(header.length)) continue;
    const name = header.toLowerCase();
    if (name === 'authorization') authorization = authorization === undefined ? value : '';
    else if (name === 'connection') connectionOptions += value.includes(',') ? listed(value).length : 1;
    else if (SINGLE.has(name)) {
      seen ??= [];
      if (seen.includes(name)) refuse(`The request has more than one ${name} header.`);
      seen.push(name);
      if (name === 'host') host = value;
    }
  }
  if (length > bytes) refuse(undefined, 'headers_too_large');
  if (connectionOptions > MAX_CONNECTION_OPTIONS)
    refuse(`The request has more than ${MAX_CONNECTION_OPTIONS} Connection options.`);
  return { host, authorization };
}

/**
 * Node refuses Content-Length together with Transfer-Encoding, but accepts codings other than chunked, and chunks in
 * HTTP/1.0.
 */
function checkFraming({ headers, httpVersion }: IncomingMessage): void {
  const { expect = '100-continue', 'content-length': length = '0' } = headers;
  if (expect.toLowerCase() !== '100-continue') refuse(undefined, 'expectation_failed');
  if (!LENGTH.test(length)) refuse('Content-Length must be a number without leading zeros.');
  const coding = headers['transfer-encoding'];
  if (coding === undefined) return;
  if (httpVersion === '1.0') refuse('HTTP/1.0 has no Transfer-Encoding.');
  if (coding.toLowerCase() !== 'chunked') refuse('The only supported transfer coding is chunked.');
  if (headers['content-length'] !== undefined)
    refuse('A request must not have both Content-Length and Transfer-Encoding.');
}

/** The only accepted form of a length. */
const LENGTH = /^(?:0|[1-9]\d*)$/;

/** Refuses a request whose end or meaning is uncertain. @throws {HttpError} which closes the connection */
export function refuse(message: string | undefined, code: ErrorCode = 'invalid_request'): never {
  throw new HttpError(code, message, { closes: true });
}

/** Whether the headers announce a body (RFC 9112 §6). */
export function announcesBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';
}

/** Header rules for every hop. Names are in lower case. */

/** Browsers must not guess another type (Fetch §3.6). */
const ALWAYS = ['X-Content-Type-Options', 'nosniff'];
/** Makes browsers use only TLS for a year (RFC 6797). */
const OVER_TLS = [...ALWAYS, 'Strict-Transport-Security', 'max-age=31536000'];

/** The headers of every response on a connection, as a flat list. */
export const commonHeaders = (socket: Socket): readonly string[] =>
  (socket as TLSSocket).encrypted ? OVER_TLS : ALWAYS;

/** The longest request id that the gateway accepts from a client. */
export const MAX_REQUEST_ID_LENGTH = 64;
/** A service accepts longer ids, because the gateway appends a dot, nine digits and a counter of up to 13 digits. */
const REQUEST_ID = /^[\w.-]{1,87}$/;

/** The request's id: the caller's X-Request-Id if it is safe for logs and headers, else a new one. */
export function requestIdOf({ headers }: IncomingMessage, isFit: (id: string) => boolean = () => true): string {
  const given = headers['x-request-id'];
  return typeof given === 'string' && REQUEST_ID.test(given) && isFit(given) ? given : randomUUID();
}

/** A key that makes a POST safe to repeat (draft-ietf-httpapi-idempotency-key-header). */
export const IDEMPOTENCY_KEY = 'idempotency-key';
export const MAX_IDEMPOTENCY_KEY_LENGTH = 255;

/** The public part of the sender's API key, for the core. Never accepted from a client. */
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
 * Every service must pass on at least 512 characters of tracestate (§3.3.1.5). A longer value, or one that is not text,
 * is dropped completely.
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

/** Starts a new trace. Later services decide whether to record it. */
const beginTrace = (): Trace => ({ id: randomHex(32), flags: NOT_SAMPLED });

/** Adds headers for the next service to a flat list: the same trace, with this request as the parent. */
export function addTrace(headers: string[], { id, flags, state }: Trace): void {
  headers.push('traceparent', `00-${id}-${randomHex(16)}-${flags}`);
  if (state !== undefined) headers.push('tracestate', state);
}

const POOL_BYTES = 8_192;
let pool = '';
let used = 0;

/** Random hexadecimal digits. They are generated in bulk, because a few cost as much as thousands. */
function randomHex(digits: number): string {
  if (used + digits > pool.length) {
    pool = randomBytes(POOL_BYTES).toString('hex');
    used = 0;
  }
  used += digits;
  return pool.slice(used - digits, used);
}

/** A fault in the bytes of a connection, with a code from Node or llhttp, or one of those below. */
export interface Fault {
  readonly code?: string;
  readonly reason?: string;
}
const NO_REQUEST_LINE: Fault = { code: 'NO_REQUEST_LINE' };
const NO_CHUNK_SIZE: Fault = { code: 'NO_CHUNK_SIZE' };
/** llhttp's code for chunk extensions that are too long. */
const LONG_CHUNK_LINE: Fault = { code: 'HPE_CHUNK_EXTENSIONS_OVERFLOW' };
const MANY_CHUNKS: Fault = { code: 'MANY_CHUNKS' };

const LINE_FEED = 0x0a;
const RETURN = 0x0d;
/**
 * Handling one chunk costs as much as handling many bytes. A body may have FREE_CHUNKS, and one more for every
 * BYTES_A_CHUNK bytes.
 */
const FREE_CHUNKS = 500;
const BYTES_A_CHUNK = 128;
/** The length of the line break after the data of a chunk. */
const LINE_BREAK = 2;
/** The end of a head and of trailers. Node's parser accepts no other line endings. */
const EMPTY_LINE = '\r\n\r\n';
/** A complete line that is not a method, a target and an HTTP version, separated by single spaces. */
const OTHER_LINE = /^(?![^ \r\n]+ [^ \r\n]+ HTTP\/)[^\r\n]*[\r\n]/;
const CHUNK_LINE = /^([\da-f]+)[^\r\n]*\r\n/i;
/**
 * Heads are rarely longer than this, and chunk lines never. Searching a string takes a third of the time of searching a
 * buffer.
 */
const USUAL_BYTES = 1_024;

/**
 * Divides the bytes of a connection before Node's parser gets them, so that the parser gets at most one request at a
 * time. It also checks the request line, because the parser accepts RTSP, lines without a version, and extra spaces,
 * which other parsers might not skip (RFC 9112 §3). The parser itself refuses everything else that is malformed.
 */
export class RequestBytes {
  /** Whether the next bytes belong to the body of a request. */
  isInBody = false;
  /**
   * The bytes read so far of an incomplete request line or chunk line; otherwise, the start of what may be an empty
   * line.
   */
  #begun = '';
  /** Whether the request line of the current head is complete. */
  #hasLine = false;
  /** The bytes still to come of a chunk or of a body with a length. */
  #left = 0;
  /** How many more chunks the body may have. */
  #chunksLeft = 0;
  #isEnded = false;

  /**
   * The end of the part that begins here: a head, a body with a length, a chunk, or trailers. Returns a fault if
   * the request line is invalid, a chunk has no size, or there are too many chunks.
   */
  endOfPart(bytes: Buffer, at: number): number | Fault {
    if (this.#left > 0) return this.#endOfLength(bytes, at);
    const begun = this.#begun;
    const from = this.isInBody || begun !== '' ? at : behindBreaks(bytes, at);
    const lineEnd = this.isInBody || this.#hasLine ? from : bytes.indexOf(LINE_FEED, from);
    const read = Math.min(Math.max(from + USUAL_BYTES, lineEnd + 1), bytes.length);
    let text = begun + bytes.toString('latin1', from, read);
    if (this.isInBody) {
      const [line = '', size = ''] = CHUNK_LINE.exec(text) ?? [];
      if (line === '' && text.includes('\n')) return NO_CHUNK_SIZE;
      if (line === '' && text.length >= USUAL_BYTES) return LONG_CHUNK_LINE;
      this.#left = Number.parseInt(size, 16) || 0;
      if (this.#left > 0) {
        this.#begun = '';
        this.#chunksLeft += this.#left / BYTES_A_CHUNK - 1;
        if (this.#chunksLeft < 0) return MANY_CHUNKS;
        this.#left += line.length - begun.length + LINE_BREAK;
        return this.#endOfLength(bytes, at);
      }
    }
    const near = text.indexOf(EMPTY_LINE);
    const far = near === -1 ? bytes.indexOf(EMPTY_LINE, Math.max(from, read - EMPTY_LINE.length), 'latin1') : -1;
    this.#isEnded = near !== -1 || far !== -1;
    // If the part ends here, the bytes after it are not converted to text: they can be other requests.
    if (!this.#isEnded) text += bytes.toString('latin1', read);
    if (!this.isInBody && !this.#hasLine && OTHER_LINE.test(text)) return NO_REQUEST_LINE;
    this.#hasLine = !this.#isEnded && !this.isInBody && (this.#hasLine || text.includes('\n'));
    this.#begun = this.#isEnded ? '' : text.slice(this.#hasLine ? -3 : 0);
    if (!this.#isEnded) return bytes.length;
    return EMPTY_LINE.length + (near === -1 ? far : from + near - begun.length);
  }

  /** Whether these bytes are nothing but empty lines between requests, which the parser ignores. */
  isEmpty(bytes: Buffer, at: number): boolean {
    return !this.isInBody && this.#begun === '' && !this.#hasLine && behindBreaks(bytes, at) === bytes.length;
  }

  /**
   * Called when the parser has read a part.
   * @param request the request that the parser is reading or read last
   */
  follow(request: IncomingMessage | null): void {
    if (!this.#isEnded) return;
    if (!this.isInBody) this.#chunksLeft = FREE_CHUNKS;
    this.isInBody = request?.complete === false;
    if (this.isInBody) this.#left = Number(request?.headers['content-length'] ?? 0);
  }

  #endOfLength(bytes: Buffer, at: number): number {
    const end = Math.min(at + this.#left, bytes.length);
    this.#left -= end - at;
    this.#isEnded = this.#left === 0;
    return end;
  }
}

/** Skips line breaks before a request, as the parser does. */
function behindBreaks(bytes: Buffer, from: number): number {
  let at = from;
  while (bytes[at] === RETURN || bytes[at] === LINE_FEED) at++;
  return at;
}
