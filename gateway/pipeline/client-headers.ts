import { commonHeaders } from '../../shared/http/request-head.ts';
import { SECOND, ticksUntilFull, ticksUntilNextToken, ticksUntilToken } from '../limiter/bucket.ts';
import type { BucketState, LimitStatus } from '../limiter/limiter.ts';
import { type Exchange, timesOf } from '../telemetry/exchange.ts';

/**
 * The gateway's headers on every answer to a client, as a flat list.
 * @param beside headers of the answer itself. If they already allow any origin, the CORS headers are left out.
 */
export function clientHeaders(
  { id, limitStatus, keyStatus, cors, route, request }: Exchange,
  draftFields: boolean,
  beside: readonly string[] = [],
): string[] {
  const headers = ['X-Request-Id', id, ...commonHeaders(request.socket)];
  // An answer that reports the limit status has no Retry-After.
  if (limitStatus !== undefined) addLimits(headers, limitStatus, draftFields, limitStatus !== keyStatus);
  if (cors.length > 0 && !beside.includes('Access-Control-Allow-Origin')) headers.push(...cors);
  if (route?.deprecation !== undefined) headers.push(...route.deprecation);
  return headers;
}

/** How long each part of a request took until its answer began, in ms (W3C Server Timing). */
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
 * @param withRetryAfter is false for an answer that only reports a limit status
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
    // The Unix second when the bucket is full again or, after a refusal or ban, when to try again.
    'X-RateLimit-Reset',
    String(Math.ceil((status.now + ticksUntilReset) / SECOND)),
  );
  // Parsers of an earlier draft look for these names anywhere. For all others they are vendor parameters.
  const earlier = `;store-limit=${bucket.limit};store-remaining=${remaining};store-reset=${Math.ceil(ticksUntilReset / SECOND)}`;
  if (draftFields) addRateLimitFields(headers, status, bucket, retryAfter, earlier);
  if (withRetryAfter && retryAfter !== undefined) headers.push('Retry-After', String(retryAfter));
}

/**
 * Seconds until the caller should try again, rounded up; undefined unless a limit or a ban refused it. A caller that
 * returns then finds a token, unless another request took it.
 */
export const retryAfterSeconds = (status: LimitStatus): number | undefined =>
  isLimited(status.outcome) ? Math.max(1, Math.ceil(ticksUntilRetry(status) / SECOND)) : undefined;

/**
 * A refused request waits for its place in line. A banned one waits for the end of the ban, and then for a token if
 * there is none.
 */
function ticksUntilRetry({ outcome, now, buckets, bannedUntil, retryAt = 0 }: LimitStatus): number {
  const waits = buckets.map((bucket) => ticksUntilToken(bucket, bucket.limit, bucket.window));
  return Math.max(...waits, (outcome === 'banned' ? bannedUntil : retryAt) - now);
}

/** Whether a limit refused the request. A forbidden request gets the remaining limit, like an admitted one. */
const isLimited = (outcome: LimitStatus['outcome']): boolean => outcome === 'refused' || outcome === 'banned';

/** The bucket with the fewest tokens left or, for a refused request, with the longest wait. */
function describedBucket({ outcome, buckets }: LimitStatus): BucketState {
  const refused = isLimited(outcome);
  let described = buckets[0] as BucketState;
  for (const bucket of buckets) {
    const isTighter = refused
      ? ticksUntilToken(bucket, bucket.limit, bucket.window) >
        ticksUntilToken(described, described.limit, described.window)
      : bucket.tokens < described.tokens;
    if (isTighter) described = bucket;
  }
  return described;
}

const remainingOf = ({ outcome }: LimitStatus, { tokens }: BucketState): number =>
  isLimited(outcome) ? 0 : Math.max(0, tokens);

/**
 * Two lists of strings with parameters (RFC 9651). Policy: q requests in w seconds. Limit: r requests in t seconds. r/t
 * is the refill rate: a client that spreads r requests over t seconds is not refused and wastes no token. A refusal
 * lists only the limit that refused, with t = Retry-After.
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

/** Ticks that it takes to refill as many tokens as are left or, with none left, to get one. */
function ticksOf(bucket: BucketState, limit: number, window: number): number {
  return bucket.tokens < 1 ? ticksUntilNextToken(bucket, limit, window) : (bucket.tokens * window) / limit;
}
