import type { ServerResponse } from 'node:http';
import { ERRORS, type HttpError, helpFor } from '../../shared/http/errors.ts';
import { listed } from '../../shared/lists.ts';
import { EndUnknown, Unreadable } from './faults.ts';
import { hasBody, responseHeaders } from './headers.ts';

/** Parses the responses that follow each other on one connection: small ones as a whole, large ones in pieces. */

/** A longer body is streamed, so that the unread data of slow clients does not fill the memory. */
export const MAX_BODY_BYTES = 65_536;
const MAX_HEAD_BYTES = 16_384;
const MAX_TEXT_BYTES = 16_384;
/** This is enough for a body in the smallest realistic chunks. */
const MAX_BYTES = 2 * MAX_BODY_BYTES;

export interface AnswerHead {
  readonly status: number;
  /** Flat list of names and values. */
  readonly headers: readonly string[];
  /** The X-Request-Id; undefined if there is none, or if there are several different ones. */
  readonly requestId: string | undefined;
  /** How long the core keeps an idle connection open, in ms; undefined if it does not state this. */
  readonly keepAliveMs: number | undefined;
  /** The length of the body in bytes, if the core states it. */
  readonly length: number | undefined;
  readonly isChunked: boolean;
  /** Whether the core closes its connection after this response. */
  readonly isLast: boolean;
}

/** The response to one request, as received. */
export interface Answer extends AnswerHead {
  /** A short body is a string with one character per byte, so that head and body take one write. */
  readonly body: string | Buffer;
}

/** A response that must be streamed. None of it has been forwarded yet, so the request can be repeated. */
export class AnswerTooLarge extends Error {
  readonly head: AnswerHead;
  /** Where the body begins in the bytes that were read. */
  readonly from: number;

  constructor(head: AnswerHead, from: number) {
    super('The response is too large to be read as a whole.');
    this.head = head;
    this.from = from;
  }
}

interface Framed {
  readonly answer: Answer;
  /** Where the next response begins. */
  readonly end: number;
}

const STATUS_LINE = 'HTTP/1.1 ';
const END_OF_HEAD = Buffer.from('\r\n\r\n');
/** A field line (RFC 9112 §5), without obsolete forms such as folding or spaces before a colon. */
const FIELD_LINE = /[!#$%&'*+.^_`|~\w-]+:[\t\x20-\x7e\x80-\xff]*/.source;
/** Status line and field lines (RFC 9112 §4). */
const HEAD = new RegExp(`^HTTP/1\\.1 [1-5]\\d\\d(?: [\\t\\x20-\\x7e\\x80-\\xff]*)?(?:\\r\\n${FIELD_LINE})*$`);
/** Headers that describe the framing or the connection must not be trailers (RFC 9110 §6.5.1); some parsers obey them. */
const TRAILERS = new RegExp(`^(?:(?!(?:content-length|transfer-encoding|connection):)${FIELD_LINE}\\r\\n)*$`, 'i');
const CHUNK_SIZE = /^[0-9A-Fa-f]{1,6}$/;

/**
 * Reads the response that begins at `start`. The parser is strict (RFC 9112 §6.3): the next response begins where this
 * one ends, so a response that could be read in two ways is rejected.
 * @param isHead whether it answers HEAD and so has no body, whatever its headers say
 * @returns undefined while the response is incomplete
 * @throws {Unreadable}
 * @throws {EndUnknown} if only the end of the connection delimits it
 * @throws {AnswerTooLarge} as soon as this is known
 */
export function readAnswer(bytes: Buffer, start: number, isHead: boolean): Framed | undefined {
  const found = findHead(bytes, start);
  if (found === undefined) return undefined;
  const { status, end: from } = found;
  const answer = readHead(found.head, status);
  if (!hasBody(isHead, status)) return { answer, end: from };
  const framed = answer.isChunked ? readChunks(bytes, from) : readBody(bytes, from, answer.length);
  if (framed === TOO_LARGE) throw new AnswerTooLarge(answer, from);
  if (framed === undefined) return undefined;
  answer.body = framed.body;
  return { answer, end: framed.end };
}

const TOO_LARGE = 'too large';

/** Finds the head after any interim responses. Those are dropped, because no client requested them (RFC 9110 §15.2). */
function findHead(bytes: Buffer, start: number): { head: string; status: number; end: number } | undefined {
  for (let at = start; ; ) {
    const end = bytes.indexOf(END_OF_HEAD, at);
    // Three of the four bytes that end the head may have arrived already.
    if ((end === -1 ? bytes.length - 3 : end) - at > MAX_HEAD_BYTES) throw new Unreadable('Its head is too long.');
    const head = bytes.toString('latin1', at, end === -1 ? at + STATUS_LINE.length : end);
    if (!STATUS_LINE.startsWith(head.slice(0, STATUS_LINE.length))) throw new Unreadable('It is not HTTP/1.1.');
    if (end === -1) return undefined;
    if (!HEAD.test(head)) throw new Unreadable('Its head is malformed.');
    const status = Number(head.slice(STATUS_LINE.length, STATUS_LINE.length + 3));
    at = end + END_OF_HEAD.length;
    if (status >= 200) return { head, status, end: at };
    if (status === 101) throw new Unreadable('No client requested another protocol.');
    // An interim response has no body (RFC 9110 §8.6, RFC 9112 §6.1) and does not end the connection, but some parsers
    // would obey headers that say otherwise.
    const { length, isChunked, isLast } = readHead(head, status);
    if (isLast || isChunked || length !== undefined)
      throw new Unreadable('An interim response announces a body or the end of the connection.');
  }
}

/** The lengths of the header names that are read here, so that other names need not be lowercased. */
const LENGTHS_READ: ReadonlySet<number> = new Set(
  ['content-length', 'transfer-encoding', 'connection', 'keep-alive', 'x-request-id'].map(({ length }) => length),
);
const LENGTH = /^\d{1,15}$/;
const TIMEOUT = /\btimeout=(\d{1,9})/i;

/** @param head a well-formed head @returns a response whose body is still empty */
function readHead(head: string, status: number): { -readonly [field in keyof Answer]: Answer[field] } {
  const headers: string[] = [];
  let requestId: string | undefined;
  let hasOneId = true;
  let keepAliveMs: number | undefined;
  let length: number | undefined;
  let isChunked = false;
  let isLast = false;
  for (let at = head.indexOf('\r\n'); at !== -1; ) {
    const next = head.indexOf('\r\n', at + 2);
    const colon = head.indexOf(':', at);
    const name = head.slice(at + 2, colon);
    const value = trimmed(head, colon + 1, next === -1 ? head.length : next);
    headers.push(name, value);
    switch (LENGTHS_READ.has(name.length) ? name.toLowerCase() : '') {
      case 'content-length':
        if (length !== undefined || !LENGTH.test(value)) throw new Unreadable('Its length is invalid.');
        length = Number(value);
        break;
      case 'transfer-encoding':
        if (isChunked || value.toLowerCase() !== 'chunked') throw new Unreadable('It has an unknown transfer coding.');
        isChunked = true;
        break;
      case 'connection':
        isLast ||= value !== 'keep-alive' && listed(value.toLowerCase()).includes('close');
        break;
      case 'keep-alive':
        keepAliveMs ??= timeoutOf(value);
        break;
      case 'x-request-id':
        hasOneId &&= requestId === undefined || requestId === value;
        requestId = value;
    }
    at = next;
  }
  if (isChunked && length !== undefined) throw new Unreadable('It has both a length and chunks.');
  if (!hasOneId) requestId = undefined;
  return { status, headers, requestId, keepAliveMs, length, isChunked, isLast, body: '' };
}

function timeoutOf(keepAlive: string): number | undefined {
  const seconds = TIMEOUT.exec(keepAlive)?.[1];
  return seconds === undefined ? undefined : 1_000 * Number(seconds);
}

/** Trims spaces and tabs (RFC 9110 §5.5). trim() would also remove other characters, which are data here. */
function trimmed(text: string, start: number, end: number): string {
  let from = start;
  let to = end;
  while (from < to && isBlank(text.charCodeAt(from))) from++;
  while (to > from && isBlank(text.charCodeAt(to - 1))) to--;
  return text.slice(from, to);
}

const isBlank = (code: number): boolean => code === 0x20 || code === 0x09;

interface Body {
  readonly body: Answer['body'];
  readonly end: number;
}

function readBody(bytes: Buffer, from: number, length: number | undefined): Body | typeof TOO_LARGE | undefined {
  if (length === undefined) throw new EndUnknown();
  const end = from + length;
  if (length > MAX_BODY_BYTES) return TOO_LARGE;
  if (end > bytes.length) return undefined;
  // Copied, because the read buffer is reused.
  return {
    body: length > MAX_TEXT_BYTES ? Buffer.from(bytes.subarray(from, end)) : bytes.toString('latin1', from, end),
    end,
  };
}

/** Reads chunks without extensions (RFC 9112 §7.1), because those would not be forwarded. Trailers are dropped. */
function readChunks(bytes: Buffer, from: number): Body | typeof TOO_LARGE | undefined {
  let body = '';
  for (let at = from; ; ) {
    const endOfSize = bytes.indexOf('\r\n', at, 'latin1');
    const size = bytes.toString('latin1', at, endOfSize === -1 ? Math.min(at + 8, bytes.length) : endOfSize);
    if (endOfSize !== -1 ? !CHUNK_SIZE.test(size) : size.length === 8)
      throw new Unreadable('It has a malformed chunk.');
    if (endOfSize === -1) return undefined;
    const start = endOfSize + 2;
    const end = start + Number.parseInt(size, 16);
    if (end === start) return withoutTrailers(bytes, start, body);
    if (body.length + end - start > MAX_BODY_BYTES || at - from > MAX_BYTES) return TOO_LARGE;
    if (end + 2 > bytes.length) return undefined;
    if (bytes.toString('latin1', end, end + 2) !== '\r\n') throw new Unreadable('It has a malformed chunk.');
    body += bytes.toString('latin1', start, end);
    at = end + 2;
  }
}

/** @param from where the line of the last chunk ends; without trailers, an empty line follows it */
function withoutTrailers(bytes: Buffer, from: number, body: string): Body | undefined {
  const end = bytes.indexOf(END_OF_HEAD, from - 2);
  const isLong = (end === -1 ? bytes.length : end) - from > MAX_LINES_BYTES;
  // Other lines may be the start of another response, and must not be skipped.
  if (isLong || (end !== -1 && !TRAILERS.test(bytes.toString('latin1', from, end + 2))))
    throw new Unreadable('It has a malformed chunk.');
  return end === -1 ? undefined : { body, end: end + END_OF_HEAD.length };
}

/** A streamed response may have longer chunks than CHUNK_SIZE allows. */
const SIZE_LINE = /^[0-9A-Fa-f]{1,12}\r\n$/;
/** The maximum size of the lines between two chunks, or after the last one. */
const MAX_LINES_BYTES = 16_384;

/** Reads a body piece by piece, as it arrives. */
export class BodyReader {
  /** Whether the whole body was read. */
  isComplete = false;
  readonly #isChunked: boolean;
  /** The number of unread bytes of the body, or of the current chunk. */
  #left: number;
  #next: 'size' | 'end of chunk' | 'end' = 'size';
  /** The received part of the line between two chunks, and the size of all lines since the last chunk. */
  #line = '';
  #lines = 0;

  /** @param length the length of the body in bytes; undefined if it is chunked */
  constructor(length: number | undefined) {
    this.#isChunked = length === undefined;
    this.#left = length ?? 0;
  }

  /**
   * Reads the next bytes.
   * @param pass called with each part of the body, a view of `bytes`
   * @returns where the response ends, or the end of `bytes`
   * @throws {Unreadable}
   */
  read(bytes: Buffer, from: number, pass: (part: Buffer) => void): number {
    let at = from;
    while (at < bytes.length && !this.isComplete)
      at = this.#left > 0 ? this.#pass(bytes, at, pass) : this.#readLine(bytes, at);
    return at;
  }

  #pass(bytes: Buffer, at: number, pass: (part: Buffer) => void): number {
    const end = Math.min(at + this.#left, bytes.length);
    pass(bytes.subarray(at, end));
    this.#left -= end - at;
    this.#lines = 0;
    this.isComplete = this.#left === 0 && !this.#isChunked;
    return end;
  }

  #readLine(bytes: Buffer, at: number): number {
    const feed = bytes.indexOf('\n', at, 'latin1');
    const end = feed === -1 ? bytes.length : feed + 1;
    this.#lines += end - at;
    if (this.#lines > MAX_LINES_BYTES) throw new Unreadable('It has a malformed chunk.');
    this.#line += bytes.toString('latin1', at, end);
    if (feed === -1) return end;
    this.#endLine(this.#line);
    this.#line = '';
    return end;
  }

  #endLine(line: string): void {
    if (this.#next === 'size') {
      if (!SIZE_LINE.test(line)) throw new Unreadable('It has a malformed chunk.');
      this.#left = Number.parseInt(line, 16);
      this.#next = this.#left === 0 ? 'end' : 'end of chunk';
    } else if (line === '\r\n') {
      this.isComplete = this.#next === 'end';
      this.#next = 'size';
    } else if (this.#next === 'end of chunk') throw new Unreadable('It has a malformed chunk.');
    // Trailers are dropped (RFC 9112 §7.1.2).
  }
}

/** Where the response goes, and what is recorded about it. All times here are from performance.now(). */
export interface Destination {
  readonly response: ServerResponse;
  /** When the last attempt was handed to a wire. */
  sentAt: number | undefined;
  /** When the core began to answer, or the gateway stopped waiting for it. */
  answeredAt: number | undefined;
  coreCode?: string | undefined;
  /** Headers that are known only when the response begins, as a flat list. */
  lateHeaders?: (() => readonly string[]) | undefined;
}

/** Called once: after the whole response was sent, or with the {HttpError} that prevented this (502, 503 or 504). */
export type Done = (fault?: HttpError) => void;

const CODE = /"code":"([a-z_]+)"/;

/**
 * The code of the core's error, if it is one of ours. Returns our own string, because a slice of the body would keep
 * all of it in memory.
 */
function codeOf({ status, body }: Answer): string | undefined {
  const code = status >= 400 && typeof body === 'string' ? CODE.exec(body)?.[1] : undefined;
  return code === undefined ? undefined : Object.keys(ERRORS).find((known) => known === code);
}

/**
 * Sends a response. If it is short, head and body are one string, sent in one write; latin1 preserves every byte. An
 * error with one of our codes gets the Link header that explains it.
 * @returns the code with which the core refused the request; undefined for the core's own faults, which its log
 *   explains
 */
export function sendAnswer(answer: Answer, response: ServerResponse, extra: readonly string[]): string | undefined {
  const { status, headers, isChunked, body } = answer;
  const kept = responseHeaders(headers, status);
  // A chunked response gets a Content-Length.
  if (isChunked && hasBody(response.req.method === 'HEAD', status)) kept.push('Content-Length', String(body.length));
  kept.push(...extra);
  const code = codeOf(answer);
  if (code !== undefined) kept.push(...helpFor(code));
  response.writeHead(status, kept);
  response.end(body, 'latin1');
  return status < 500 ? code : undefined;
}
