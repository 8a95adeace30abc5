import type { IncomingMessage } from 'node:http';
import { announcesBody } from '../../shared/http/body.ts';
import { methodNotAllowed } from '../../shared/http/errors.ts';
import { checkHead, type HeadLimits, originForm, refuse } from '../../shared/http/request-head.ts';

/**
 * The single form in which a request is checked, decided on and forwarded. Node's parser accepts requests that another
 * parser may read differently (RFC 9112 §11.2). Such a request has no canonical form and is refused before anything
 * else.
 */
export interface CanonicalRequest {
  readonly method: string;
  readonly path: string;
  /** Path and query exactly as received. They are forwarded unchanged. */
  readonly target: string;
  readonly host: string;
  readonly authorization: string | undefined;
  readonly hasBody: boolean;
}

const MAX_TARGET_LENGTH = 8_192;
/** The server accepts heads of twice this length, so that this check can answer those that are too long. */
export const HEAD_LIMITS: HeadLimits = { lines: 100, bytes: 16_384 };
/** Methods that routes use or that clients may reasonably try. Others are refused before routing. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** Non-empty segments of unreserved characters, sub-delimiters and percent-encodings (RFC 3986 §3.3). */
const PATH = /^(?:\/(?:[\w.~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*\/?$/;
/**
 * A dot segment in any spelling, even with parameters, or an encoding that a second decoder would read as a slash or as
 * the end of the text.
 */
const AMBIGUOUS = /\/(?:\.|%2e){1,2}(?:\/|;|%3b|$)|%(?:2f|5c|00)/i;
const QUERY = /^(?:[\w.~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*$/;

/** @throws {HttpError} 400, 405, 414, 417, 431 or 505; each closes the connection */
export function canonicalRequest(request: IncomingMessage): CanonicalRequest {
  const { method = '', url = '' } = request;
  if (url.length > MAX_TARGET_LENGTH) refuse(undefined, 'uri_too_long');
  const { host = refuse('Exactly one well-formed Host header is required.'), authorization } = checkHead(
    request,
    HEAD_LIMITS,
  );
  const target = originForm(url, host);
  const path = method === 'OPTIONS' && target === '*' ? target : canonicalPath(target);
  if (!METHODS.has(method)) throw methodNotAllowed('GET, HEAD, POST', true);
  return { method, path, target, host, authorization, hasBody: announcesBody(request) };
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
