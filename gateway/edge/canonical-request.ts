import type { IncomingMessage } from 'node:http';
import { announcesBody } from '../../shared/body.ts';
import { HttpError } from '../../shared/errors.ts';

/**
 * The one form in which a request is checked, decided on and forwarded. What Node's parser lets through and a second
 * parser may read otherwise (RFC 9112 §11.2) has no canonical form, and is refused before anything else sees it.
 */
export interface CanonicalRequest {
  readonly method: string;
  readonly path: string;
  /** Path and query, exactly as they arrived: this very text goes upstream. */
  readonly target: string;
  readonly authorization: string | undefined;
  readonly hasBody: boolean;
}

const MAX_TARGET_LENGTH = 8_192;
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** Segments of unreserved characters, sub-delimiters and percent-encodings (RFC 3986 §3.3), none of them empty. */
const PATH = /^(?:\/(?:[\w.~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*\/?$/;
/** A dot segment in any spelling, and the encodings that a second decoder would take for a slash or an end of text. */
const AMBIGUOUS = /\/(?:\.|%2e){1,2}(?:\/|$)|%(?:2f|5c|00)/i;
const QUERY = /^(?:[\w.~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*$/;
/** host [ ":" port ], with an IP literal in brackets (RFC 9110 §7.2). */
const HOST = /^(?:[\w.~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/;

/** @throws {HttpError} 400, 405 or 414 */
export function canonicalRequest(request: IncomingMessage): CanonicalRequest {
  const { method = '', url: target = '', httpVersion } = request;
  if (httpVersion !== '1.1' && httpVersion !== '1.0') refuse('Only HTTP/1.1 and HTTP/1.0 are spoken here.');
  if (target.length > MAX_TARGET_LENGTH) throw new HttpError('uri_too_long');
  const heads = singleHeaders(request);
  checkFraming(request);
  const path = canonicalPath(target);
  if (!METHODS.has(method))
    throw new HttpError('method_not_allowed', undefined, { headers: ['Allow', 'GET, HEAD, POST'] });
  return { method, path, target, authorization: heads.authorization, hasBody: announcesBody(request) };
}

const ONE_HOST = 'Exactly one well-formed Host header is required.';

/** Node takes the first of several Host or Authorization headers, others take the last: only one is taken here. */
function singleHeaders({ rawHeaders, httpVersion }: IncomingMessage): { authorization: string | undefined } {
  let hosts = 0;
  let authorization: string | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]?.toLowerCase();
    const value = rawHeaders[at + 1] ?? '';
    if (name === 'host') {
      if (++hosts > 1 || !HOST.test(value)) refuse(ONE_HOST);
    } else if (name === 'authorization') {
      // Two of them are no credential at all: an empty one, which opens nothing.
      authorization = authorization === undefined ? value : '';
    }
  }
  if (hosts === 0 && httpVersion === '1.1') refuse(ONE_HOST);
  return { authorization };
}

/** Node refuses Content-Length beside Transfer-Encoding; a coding other than chunked and chunks in HTTP/1.0 it takes. */
function checkFraming({ headers, httpVersion }: IncomingMessage): void {
  const { expect = '100-continue' } = headers;
  if (expect.toLowerCase() !== '100-continue') refuse('The only expectation taken is 100-continue.');
  const coding = headers['transfer-encoding'];
  if (coding === undefined) return;
  if (coding.toLowerCase() !== 'chunked' || httpVersion === '1.0') refuse('The only transfer coding taken is chunked.');
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

function refuse(message: string): never {
  throw new HttpError('invalid_request', message, { headers: ['Connection', 'close'] });
}
