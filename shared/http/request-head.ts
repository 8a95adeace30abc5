import type { IncomingMessage } from 'node:http';
import { listed } from '../lists.ts';
import { type ErrorCode, HttpError } from './errors.ts';

/**
 * The checks of a request's head that every server here makes. Node's parser accepts heads that another parser may read
 * differently (RFC 9112 §11.2). Such a request has no certain end, so its refusal closes the connection.
 */

/**
 * What is wrong with the bytes of a request that will not be complete. It is stored on the request itself, because a
 * map or another listener costs 4 % of a POST.
 */
export const FAULT = Symbol('fault of a request');
export type BrokenRequest = IncomingMessage & { [FAULT]?: HttpError };

/** The limits of a request's head. Node drops lines above KEPT_HEADER_LINES silently, so `lines` is lower. */
export interface HeadLimits {
  readonly lines: number;
  /** The length of target, header names and values together. */
  readonly bytes: number;
}

/** What the checks have read. */
export interface CheckedHead {
  /** Undefined only in HTTP/1.0. */
  readonly host: string | undefined;
  /** Empty for two credentials, which count as an invalid one. */
  readonly authorization: string | undefined;
}

/** The number of header lines that every server here keeps. */
export const KEPT_HEADER_LINES = 200;

/** The most options of all Connection headers together. Every other header is compared with each option. */
const MAX_CONNECTION_OPTIONS = 16;

/** host [ ":" port ], with an IP literal in brackets (RFC 9110 §7.2). The length limit is that of DNS. */
const HOST = /^(?=.{1,259}$)(?:[\w.~!$&'()*+,;=-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/;

/** Whether a text is a valid Host value. */
export const isHost = (text: string): boolean => HOST.test(text);

/**
 * Headers with consequences, which must not repeat: Node takes the first value or joins them, while other parsers take
 * the last.
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
    refuse('The request target names another host than Host does.');
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
    else if (name === 'connection') connectionOptions += listed(value).length;
    else if (SINGLE.has(name)) {
      seen ??= [];
      if (seen.includes(name)) refuse(`More than one ${name} header.`);
      seen.push(name);
      if (name === 'host') host = value;
    }
  }
  if (length > bytes) refuse(undefined, 'headers_too_large');
  if (connectionOptions > MAX_CONNECTION_OPTIONS) refuse(`More than ${MAX_CONNECTION_OPTIONS} Connection options.`);
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

/** Refuses a request that has no certain end or meaning. @throws {HttpError} which closes the connection */
export function refuse(message: string | undefined, code: ErrorCode = 'invalid_request'): never {
  throw new HttpError(code, message, { closes: true });
}
