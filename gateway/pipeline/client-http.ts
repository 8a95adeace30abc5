import type { IncomingMessage } from 'node:http';
import { BlockList, isIP, isIPv6, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import ipaddr from 'ipaddr.js';
import {
  announcesBody,
  checkHead,
  commonHeaders,
  type HeadLimits,
  isHost,
  originForm,
  refuse,
} from '../../shared/http/request-head.ts';
import { below } from '../../shared/http/server.ts';
import { isLoopback } from '../../shared/process/env.ts';
import { SECOND, ticksUntilFull, ticksUntilNextToken, ticksUntilToken } from '../limiter/bucket.ts';
import type { BucketState, LimitStatus } from '../limiter/limiter.ts';
import { type CanonicalRequest, type Exchange, type Peer, timesOf } from '../telemetry/exchange.ts';

/**
 * HTTP between a client and the gateway: the canonical form of a request, the client's address, and the headers of
 * every response.
 */

const MAX_TARGET_LENGTH = 8_192;
/** The server accepts heads of twice this length, so that this check can refuse longer ones with an error. */
export const HEAD_LIMITS: HeadLimits = { lines: 100, bytes: 16_384 };

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
  return { method, path, target, host, authorization, hasBody: announcesBody(request) };
}

function canonicalPath(target: string): string {
  const mark = target.indexOf('?');
  const path = mark === -1 ? target : target.slice(0, mark);
  const query = mark === -1 ? '' : target.slice(mark + 1);
  if (!path.startsWith('/') || !PATH.test(path) || AMBIGUOUS.test(path))
    refuse('The request target is not in canonical form.');
  if (!QUERY.test(query))
    refuse('The query contains a character that must be percent-encoded, or an incomplete percent-encoding.');
  return path;
}

/** The client's identity and how the request arrived. Only trusted proxies may state these (RFC 7239 §8.1). */

/** The other end of a connection. It is stored on the socket, because looking it up in a map costs more. */
const PEER = Symbol('peer of a connection');
type Known = Socket & { [PEER]?: Peer };

/** The peers whose X-Forwarded-* headers are trusted. */
export class TrustedProxies {
  readonly #blocks = new BlockList();
  readonly #isEmpty: boolean;

  /** @param blocks addresses or CIDR blocks */
  constructor(blocks: readonly string[]) {
    this.#isEmpty = blocks.length === 0;
    for (const block of blocks) {
      const [address = '', prefix] = block.split('/');
      const family = isIPv6(address) ? 'ipv6' : 'ipv4';
      if (prefix === undefined) this.#blocks.addAddress(address, family);
      else this.#blocks.addSubnet(address, Number(prefix), family);
    }
  }

  peerOf(socket: Known): Peer {
    const known = socket[PEER];
    if (known !== undefined) return known;
    const address = plainAddress((socket instanceof TLSSocket ? below(socket) : socket).remoteAddress);
    const peer = { address, network: networkOf(address), isTrusted: this.has(address) };
    socket[PEER] = peer;
    return peer;
  }

  has(address: string): boolean {
    if (this.#isEmpty) return false;
    const family = isIP(address);
    return family !== 0 && this.#blocks.check(address, family === 6 ? 'ipv6' : 'ipv4');
  }
}

/**
 * The client's address: the peer's, unless the peer is a trusted proxy. Each proxy appends the address of its own
 * client, so the list is read from its end to the first address that is not a trusted proxy. Earlier entries may be
 * forged.
 */
export function clientAddress({ socket, headers }: IncomingMessage, proxies: TrustedProxies): string {
  const peer = proxies.peerOf(socket);
  const forwarded = headers['x-forwarded-for'];
  let client = peer.address;
  if (forwarded === undefined || !peer.isTrusted) return client;
  for (const entry of lastHops(String(forwarded))) {
    const address = plainAddress(withoutPort(entry));
    if (isIP(address) === 0) break;
    client = address;
    if (!proxies.has(client)) break;
  }
  return client;
}

const WITH_PORT = /^(?:(\d+\.\d+\.\d+\.\d+)|\[([\da-f:.]+)\])(?::\d{1,5})?$/i;

/** Some proxies append the port of their client: `203.0.113.7:5678`, `[2001:db8::1]:443`. */
function withoutPort(entry: string): string {
  const [, ipv4, ipv6 = entry] = WITH_PORT.exec(entry) ?? [];
  return ipv4 ?? ipv6;
}

/** The maximum number of trusted proxies between a client and the gateway. */
const MAX_HOPS = 16;
/**
 * Yields the last MAX_HOPS entries in reverse order. Unlike the package proxy-addr, it ignores earlier entries,
 * because a header can contain any number of them.
 */
function* lastHops(forwarded: string): Generator<string> {
  let end = forwarded.length;
  for (let hop = 0; hop < MAX_HOPS && end >= 0; hop++) {
    const comma = end === 0 ? -1 : forwarded.lastIndexOf(',', end - 1);
    const entry = forwarded.slice(comma + 1, end).trim();
    // Empty elements are ignored (RFC 9110 §5.6.1.2).
    if (entry !== '') yield entry;
    end = comma;
  }
}

/**
 * Adds X-Forwarded-* for the core to a flat list. Keeps valid values from a trusted proxy, and sets all others itself.
 */
export function addForwarded(
  to: string[],
  { socket, headers }: IncomingMessage,
  { isTrusted }: Peer,
  client: string,
  host: string,
): void {
  const proto = isTrusted ? headers['x-forwarded-proto'] : undefined;
  const asked = isTrusted ? headers['x-forwarded-host'] : undefined;
  const ownProto = (socket as TLSSocket).encrypted ? 'https' : 'http';
  to.push(
    'X-Forwarded-For',
    client,
    'X-Forwarded-Proto',
    proto === 'http' || proto === 'https' ? proto : ownProto,
    'X-Forwarded-Host',
    typeof asked === 'string' && isHost(asked) ? asked : host,
  );
}

/**
 * The name under which a peer's connections are counted. Undefined for trusted proxies and for this machine, whose
 * connections carry many clients.
 */
export function countedAs(remoteAddress: string | undefined, proxies: TrustedProxies): string | undefined {
  const address = plainAddress(remoteAddress);
  return isLoopback(address) || proxies.has(address) ? undefined : networkOf(address);
}

/**
 * An IPv6 host can use any address of its /64, so the whole /64 counts as one network. An IPv4 address is a network of
 * its own.
 */
export const networkOf = (address: string): string => (isIPv6(address) ? prefix64(address) : address);

const MAPPED = /^[0:]*:ffff:/i;

/** The address without a zone. An IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2), in any spelling, becomes IPv4. */
export function plainAddress(address: string | undefined): string {
  if (address === undefined) return 'unknown';
  if (!address.includes(':')) return address;
  const plain = address.split('%', 1)[0] as string;
  return MAPPED.test(plain) && isIPv6(plain) ? ipaddr.process(plain).toString() : plain;
}

function prefix64(address: string): string {
  const groups = ipaddr.IPv6.parse(address).parts.slice(0, 4);
  return `${groups.map((group) => group.toString(16)).join(':')}::/64`;
}

/**
 * The gateway's headers on every response to a client, as a flat list.
 * @param beside the response's own headers. If they already allow any origin, no CORS headers are added.
 */
export function clientHeaders(
  { id, limitStatus, keyStatus, cors, route, request }: Exchange,
  draftFields: boolean,
  beside: readonly string[] = [],
): string[] {
  const headers = ['X-Request-Id', id, ...commonHeaders(request.socket)];
  if (limitStatus !== undefined) {
    const isReport = limitStatus === keyStatus;
    addLimits(headers, isReport ? reported(limitStatus) : limitStatus, draftFields, !isReport);
  }
  if (cors.length > 0 && !beside.includes('Access-Control-Allow-Origin')) headers.push(...cors);
  if (route?.deprecation !== undefined) headers.push(...route.deprecation);
  return headers;
}

/** The limit status for a response that only reports it. Such a response has no Retry-After. */
const reported = (status: LimitStatus): LimitStatus =>
  status.outcome === 'refused' ? { ...status, outcome: 'admitted' } : status;

/** How long each part of a request took until its response began, in ms (W3C Server Timing). */
export function serverTiming(exchange: Exchange): string[] {
  const { decision, waiting, core } = timesOf(exchange);
  const known = Object.entries({ decision, waiting, core }).flatMap(([name, ms]) =>
    ms === undefined ? [] : `${name};dur=${ms.toFixed(3)}`,
  );
  return known.length === 0 ? [] : ['Server-Timing', known.join(', ')];
}

/**
 * Adds all limit headers for a client: X-RateLimit-*, Retry-After after a refusal, and the fields of
 * draft-ietf-httpapi-ratelimit-headers-11 unless they are disabled.
 * @param withRetryAfter false for a response that only reports a limit status
 */
export function addLimits(headers: string[], status: LimitStatus, draftFields: boolean, withRetryAfter = true): void {
  const bucket = describedBucket(status);
  const retryAfter = retryAfterSeconds(status);
  const remaining = remainingOf(status, bucket);
  const ticksUntilReset =
    retryAfter === undefined ? ticksUntilFull(bucket, bucket.limit, bucket.window) : ticksUntilRetry(status);
  headers.push(
    'X-RateLimit-Limit',
    String(bucket.limit),
    'X-RateLimit-Remaining',
    String(remaining),
    // The Unix second at which the bucket is full again or, after a refusal or ban, a retry can succeed.
    'X-RateLimit-Reset',
    String(Math.ceil((status.now + ticksUntilReset) / SECOND)),
  );
  // Parsers for an earlier draft find `limit=`, `remaining=` and `reset=` in these. To all others they are vendor
  // parameters.
  const earlier = `;store-limit=${bucket.limit};store-remaining=${remaining};store-reset=${Math.ceil(ticksUntilReset / SECOND)}`;
  if (draftFields) addRateLimitFields(headers, status, bucket, retryAfter, earlier);
  if (withRetryAfter && retryAfter !== undefined) headers.push('Retry-After', String(retryAfter));
}

/**
 * Seconds until the caller should try again, rounded up; undefined unless a limit or a ban refused it. A caller that
 * retries then gets a token, unless another request has taken it.
 */
export const retryAfterSeconds = (status: LimitStatus): number | undefined =>
  isLimited(status.outcome) ? Math.max(1, Math.ceil(ticksUntilRetry(status) / SECOND)) : undefined;

/** A refused request waits for its place in line. A banned one waits until the ban has ended and there is a token. */
function ticksUntilRetry({ outcome, now, buckets, bannedUntil, retryAt = 0 }: LimitStatus): number {
  const waits = buckets.map((bucket) => ticksUntilToken(bucket, bucket.limit, bucket.window));
  return Math.max(...waits, (outcome === 'banned' ? bannedUntil : retryAt) - now);
}

/** Whether a limit or ban refused the request. For a forbidden one, the remaining limit is reported as it is. */
const isLimited = (outcome: LimitStatus['outcome']): boolean => outcome === 'refused' || outcome === 'banned';

/** The bucket with the fewest tokens left (of two empty ones, the day's) or, for a refused request, the longest wait. */
function describedBucket({ outcome, buckets }: LimitStatus): BucketState {
  const refused = isLimited(outcome);
  let described = buckets[0] as BucketState;
  for (const bucket of buckets) {
    const isTighter = refused
      ? ticksUntilToken(bucket, bucket.limit, bucket.window) >
        ticksUntilToken(described, described.limit, described.window)
      : bucket.tokens < Math.max(1, described.tokens);
    if (isTighter) described = bucket;
  }
  return described;
}

const remainingOf = ({ outcome }: LimitStatus, { tokens }: BucketState): number =>
  isLimited(outcome) ? 0 : Math.max(0, tokens);

/**
 * Adds two lists of strings with parameters (RFC 9651). A policy allows q requests in w seconds; a limit still allows r
 * requests in t seconds. Because r/t is the refill rate, a client that spreads r requests over t seconds is not refused
 * and wastes no token. After a refusal, only the limit that refused is listed, with t = Retry-After.
 */
function addRateLimitFields(
  headers: string[],
  status: LimitStatus,
  described: BucketState,
  retryAfter: number | undefined,
  earlier: string,
): void {
  let policies = '';
  let limits = '';
  for (const bucket of status.buckets) {
    const { name, limit, window } = bucket;
    policies += `${policies === '' ? '' : ', '}"${name}";q=${limit};w=${window / SECOND}`;
    if (retryAfter !== undefined && bucket !== described) continue;
    const t = retryAfter ?? Math.ceil(ticksOf(bucket, limit, window) / SECOND);
    limits += `${limits === '' ? '' : ', '}"${name}";r=${remainingOf(status, bucket)};t=${t}${bucket === described ? earlier : ''}`;
  }
  headers.push('RateLimit-Policy', policies, 'RateLimit', limits);
}

/**
 * The ticks in which as many tokens are refilled as the bucket now holds. If it holds none, the ticks until the next
 * token.
 */
function ticksOf(bucket: BucketState, limit: number, window: number): number {
  return bucket.tokens < 1 ? ticksUntilNextToken(bucket, limit, window) : (bucket.tokens * window) / limit;
}
