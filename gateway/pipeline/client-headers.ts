import { NO_SNIFF } from '../../shared/http/headers.ts';
import { ticksUntilFull, ticksUntilNextToken, ticksUntilToken } from '../limiter/bucket.ts';
import { SECOND } from '../limiter/clock.ts';
import type { BucketState, LimitStatus } from '../limiter/limiter.ts';
import type { Exchange } from './exchange.ts';

/**
 * Our headers on every answer to a client, as a flat list.
 * @param beside headers of the answer itself. If they allow any origin already, the CORS headers are left out.
 */
export function clientHeaders(
  { id, limitStatus, keyStatus, cors, route }: Exchange,
  draftFields: boolean,
  beside: readonly string[] = [],
): string[] {
  const headers = ['X-Request-Id', id, ...NO_SNIFF];
  // A status request gets no Retry-After.
  const headersOf = limitStatus === keyStatus ? limitStatusHeaders : limitHeaders;
  if (limitStatus !== undefined) headers.push(...headersOf(limitStatus, draftFields));
  if (cors.length > 0 && !beside.includes('Access-Control-Allow-Origin')) headers.push(...cors);
  if (route?.deprecation !== undefined) headers.push(...route.deprecation);
  return headers;
}

/** Where the time of a request went until its answer began, in ms (W3C Server Timing). */
export function serverTiming({ startedAt, decidedAt, sentAt, answeredAt }: Exchange): string[] {
  const parts: [name: string, from: number | undefined, to: number | undefined][] = [
    ['decision', startedAt, decidedAt],
    ['waiting', decidedAt, sentAt],
    ['core', sentAt, answeredAt],
  ];
  const known = parts.flatMap(([name, from, to]) =>
    from === undefined || to === undefined ? [] : `${name};dur=${Math.max(0, to - from).toFixed(3)}`,
  );
  return known.length === 0 ? [] : ['Server-Timing', known.join(', ')];
}

/**
 * All limit headers for a client: X-RateLimit-*, Retry-After after a refusal, and the fields of
 * draft-ietf-httpapi-ratelimit-headers-11 unless they are disabled.
 */
export function limitHeaders(status: LimitStatus, draftFields: boolean): string[] {
  const headers = limitStatusHeaders(status, draftFields);
  const retryAfter = retryAfterSeconds(status);
  if (retryAfter !== undefined) headers.push('Retry-After', String(retryAfter));
  return headers;
}

/** The same without Retry-After, for an answer that only reports a limit status. */
function limitStatusHeaders(status: LimitStatus, draftFields: boolean): string[] {
  const bucket = describedBucket(status);
  const headers = [
    'X-RateLimit-Limit',
    String(bucket.limit),
    'X-RateLimit-Remaining',
    String(remainingOf(status, bucket)),
    'X-RateLimit-Reset',
    String(resetAt(status, bucket)),
  ];
  if (draftFields) headers.push(...rateLimitFields(status, bucket, retryAfterSeconds(status)));
  return headers;
}

/**
 * Seconds until the caller should try again, rounded up; undefined unless a limit or a ban refused it. Whoever returns
 * then finds a token, unless somebody else took it.
 */
export const retryAfterSeconds = (status: LimitStatus): number | undefined =>
  isLimited(status.outcome) ? Math.max(1, Math.ceil(ticksUntilRetry(status) / SECOND)) : undefined;

/**
 * A refused request waits for its place behind the others that wait. A banned one waits for the end of the ban, and for
 * a token if there is none by then.
 */
function ticksUntilRetry({ outcome, now, buckets, bannedUntil, retryAt = 0 }: LimitStatus): number {
  const waits = buckets.map((bucket) => ticksUntilToken(bucket, bucket.limit, bucket.window));
  return Math.max(...waits, (outcome === 'banned' ? bannedUntil : retryAt) - now);
}

/** Whether a limit refused it. A forbidden request is sent what is left, like an admitted one. */
const isLimited = (outcome: LimitStatus['outcome']): boolean => outcome === 'refused' || outcome === 'banned';

/** The bucket with the fewest tokens left. For a refused request: the one with the longest wait. */
function describedBucket({ outcome, buckets }: LimitStatus): BucketState {
  const refused = isLimited(outcome);
  const tighter = (a: BucketState, b: BucketState) =>
    refused ? ticksUntilToken(b, b.limit, b.window) > ticksUntilToken(a, a.limit, a.window) : b.tokens < a.tokens;
  return buckets.reduce((tightest, bucket) => (tighter(tightest, bucket) ? bucket : tightest));
}

const remainingOf = ({ outcome }: LimitStatus, { tokens }: BucketState): number =>
  isLimited(outcome) ? 0 : Math.max(0, tokens);

/** The Unix second when the bucket is full again; of a refused or banned request, when to try again. */
const resetAt = (status: LimitStatus, bucket: BucketState): number =>
  Math.ceil((status.now + ticksUntilReset(status, bucket)) / SECOND);

const ticksUntilReset = (status: LimitStatus, bucket: BucketState): number =>
  isLimited(status.outcome) ? ticksUntilRetry(status) : ticksUntilFull(bucket, bucket.limit, bucket.window);

/**
 * Two lists of strings with parameters (RFC 9651). Policy: q requests in w seconds. Limit: r requests in t seconds. r/t
 * is the refill rate: a client that spreads r requests over t seconds is not refused and wastes no token. A refusal
 * lists only the limit that refused, with t = Retry-After.
 */
function rateLimitFields(status: LimitStatus, described: BucketState, retryAfter: number | undefined): string[] {
  const { outcome, buckets } = status;
  const policies = buckets.map(({ name, limit, window }) => `"${name}";q=${limit};w=${window / SECOND}`);
  const listed = isLimited(outcome) ? [described] : buckets;
  const limits = listed.map((bucket) => {
    const { name, limit, window } = bucket;
    const r = remainingOf(status, bucket);
    const t = retryAfter ?? Math.ceil(ticksOf(bucket, limit, window) / SECOND);
    return `"${name}";r=${r};t=${t}${bucket === described ? earlierDraftParameters(status, described, r) : ''}`;
  });
  return ['RateLimit-Policy', policies.join(', '), 'RateLimit', limits.join(', ')];
}

/** Ticks that the refill takes for as many tokens as are left; with none left, until the next token. */
function ticksOf(bucket: BucketState, limit: number, window: number): number {
  return bucket.tokens < 1 ? ticksUntilNextToken(bucket, limit, window) : (bucket.tokens * window) / limit;
}

/** For parsers of an earlier draft, which look for these names anywhere. For all others they are vendor parameters. */
function earlierDraftParameters(status: LimitStatus, bucket: BucketState, remaining: number): string {
  const reset = Math.ceil(ticksUntilReset(status, bucket) / SECOND);
  return `;store-limit=${bucket.limit};store-remaining=${remaining};store-reset=${reset}`;
}
