import type { IncomingMessage } from 'node:http';
import { announcesBody } from '../../shared/http/body.ts';
import { type ErrorCode, HttpError, methodNotAllowed } from '../../shared/http/errors.ts';
import { checkHeaderLines } from '../../shared/http/headers.ts';
import { listed } from '../../shared/lists.ts';

/**
 * The single form in which a request is checked, decided on and forwarded. Node's parser accepts requests that another
 * parser may read differently (RFC 9112 §11.2). Such a request has no canonical form and is refused first.
 */
export interface CanonicalRequest {
  readonly method: string;
  readonly path: string;
  /** Path and query exactly as they arrived. They are forwarded unchanged. */
  readonly target: string;
  readonly host: string;
  readonly authorization: string | undefined;
  readonly hasBody: boolean;
}

const MAX_TARGET_LENGTH = 8_192;
export const MAX_HEADER_LINES = 100;
/** In all Connection headers together. Every other header is compared with each option. */
const MAX_CONNECTION_OPTIONS = 16;
/**
 * Target, header names and values together. The server accepts twice as much, so this check answers requests that are
 * too long.
 */
export const MAX_HEAD_LENGTH = 16_384;
/** Methods that can be routed, and those a client may reasonably try. The route table says which are allowed where. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** Non-empty segments of unreserved characters, sub-delimiters and percent-encodings (RFC 3986 §3.3). */
const PATH = /^(?:\/(?:[\w.~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*\/?$/;
/**
 * A dot segment in any spelling, also with parameters; and encodings that a second decoder reads as a slash or as the
 * end of the text.
 */
const AMBIGUOUS = /\/(?:\.|%2e){1,2}(?:\/|;|%3b|$)|%(?:2f|5c|00)/i;
const QUERY = /^(?:[\w.~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*$/;
/** host [ ":" port ], with an IP literal in brackets (RFC 9110 §7.2). The length limit is that of DNS. */
const HOST = /^(?=.{1,259}$)(?:[\w.~!$&'()*+,;=-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/;

/** @throws {HttpError} 400, 405, 414, 417, 431 or 505; each closes the connection */
export function canonicalRequest(request: IncomingMessage): CanonicalRequest {
  const { method = '', url = '', httpVersion } = request;
  if (httpVersion !== '1.1' && httpVersion !== '1.0') refuse(undefined, 'http_version_not_supported');
  if (url.length > MAX_TARGET_LENGTH) throw new HttpError('uri_too_long', undefined, CLOSE);
  const { host, authorization } = singleHeaders(request, url.length);
  checkFraming(request);
  const target = originForm(url, host);
  const path = method === 'OPTIONS' && target === '*' ? target : canonicalPath(target);
  if (!METHODS.has(method)) throw methodNotAllowed('GET, HEAD, POST', CLOSE.headers);
  return { method, path, target, host, authorization, hasBody: announcesBody(request) };
}

/** Whether a text is a valid Host value. */
export const isHost = (text: string): boolean => HOST.test(text);

/**
 * Headers that decide something and must not repeat. Node takes the first value or joins them, other parsers take the
 * last, so a repeated header is ambiguous.
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

/**
 * Reads the headers that must not repeat.
 * @throws {HttpError} 400 for a repeated header or too many Connection options; 431 for too many lines or bytes
 */
function singleHeaders(
  { rawHeaders }: IncomingMessage,
  targetLength: number,
): { host: string; authorization: string | undefined } {
  let host: string | undefined;
  let authorization: string | undefined;
  let length = targetLength;
  let connectionOptions = 0;
  let seen: string[] | undefined;
  checkHeaderLines(rawHeaders, MAX_HEADER_LINES, CLOSE);
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = (rawHeaders[at] as string).toLowerCase();
    const value = rawHeaders[at + 1] as string;
    length += name.length + value.length;
    // Two credentials count as an invalid one: the empty text.
    if (name === 'authorization') authorization = authorization === undefined ? value : '';
    else if (name === 'connection') connectionOptions += listed(value).length;
    else if (SINGLE.has(name)) {
      seen ??= [];
      if (seen.includes(name)) refuse(`More than one ${name} header.`);
      seen.push(name);
      if (name === 'host') host = value;
    }
  }
  if (length > MAX_HEAD_LENGTH) refuse(undefined, 'headers_too_large');
  if (connectionOptions > MAX_CONNECTION_OPTIONS) refuse(`More than ${MAX_CONNECTION_OPTIONS} Connection options.`);
  if (host === undefined || !isHost(host)) refuse('Exactly one well-formed Host header is required.');
  return { host, authorization };
}

/**
 * Node refuses Content-Length together with Transfer-Encoding, but accepts codings other than chunked, and chunks in
 * HTTP/1.0.
 */
function checkFraming({ headers, httpVersion }: IncomingMessage): void {
  const { expect = '100-continue', 'content-length': length = '0' } = headers;
  if (expect.toLowerCase() !== '100-continue') refuse(undefined, 'expectation_failed');
  if (!LENGTH.test(length)) refuse('Content-Length is not a number without leading zeros.');
  const coding = headers['transfer-encoding'];
  if (coding === undefined) return;
  if (coding.toLowerCase() !== 'chunked' || httpVersion === '1.0') refuse('The only transfer coding taken is chunked.');
  if (headers['content-length'] !== undefined) refuse('A body has one length or chunks, not both.');
}

/** The only accepted spelling of a length. */
const LENGTH = /^(?:0|[1-9]\d*)$/;
const ABSOLUTE = /^https?:\/\/([^/?#]*)(.*)$/i;

/** Converts the absolute form to the origin form. Its authority must equal Host (RFC 9112 §3.2.2). */
function originForm(target: string, host: string): string {
  if (target.startsWith('/')) return target;
  const [, authority, rest = ''] = ABSOLUTE.exec(target) ?? [];
  if (authority === undefined) return target;
  if (authority.toLowerCase() !== host.toLowerCase()) refuse('The request target names another host than Host does.');
  return rest.startsWith('/') ? rest : `/${rest}`;
}

function canonicalPath(target: string): string {
  const mark = target.indexOf('?');
  const path = mark === -1 ? target : target.slice(0, mark);
  const query = mark === -1 ? '' : target.slice(mark + 1);
  if (!path.startsWith('/') || !PATH.test(path) || AMBIGUOUS.test(path) || !QUERY.test(query)) {
    refuse('The request target is not in canonical form.');
  }
  return path;
}

/** A request without a canonical form has no certain end, so the rest of the connection is not read. */
const CLOSE = { headers: ['Connection', 'close'] };

function refuse(message: string | undefined, code: ErrorCode = 'invalid_request'): never {
  throw new HttpError(code, message, CLOSE);
}
