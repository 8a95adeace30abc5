import { ticksUntilFull, ticksUntilNextToken, ticksUntilToken } from '../access/bucket.ts';
import { type BucketState, type LimitStatus, SECOND } from '../access/verdict.ts';

/**
 * All that a client is told about its limits, derived from where it stands: X-RateLimit-*, Retry-After where it was
 * refused, and the fields of draft-ietf-httpapi-ratelimit-headers-11 unless they are switched off.
 */
export function limitHeaders(status: LimitStatus, draftFields: boolean): string[] {
  const headers = limitStatusHeaders(status, draftFields);
  const retryAfter = retryAfterSeconds(status);
  if (retryAfter !== undefined) headers.push('Retry-After', String(retryAfter));
  return headers;
}

/** The same without Retry-After: for an answer that only tells where the caller stands. */
export function limitStatusHeaders(status: LimitStatus, draftFields: boolean): string[] {
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
 * Seconds after which the caller is to come again; undefined where it was admitted. A refused request waits for its place
 * behind the others that wait; a banned one for the end of the ban, and for a token where there is none by then.
 */
export function retryAfterSeconds({ outcome, now, buckets, bannedUntil, retryAt }: LimitStatus): number | undefined {
  if (outcome === 'admitted') return undefined;
  const waits = buckets.map((bucket) => ticksUntilToken(bucket, bucket.limit, bucket.window));
  if (outcome === 'banned') waits.push(bannedUntil - now);
  else if (retryAt !== undefined) waits.push(retryAt - now);
  return Math.max(1, Math.ceil(Math.max(...waits) / SECOND));
}

/** The bucket with the fewest requests left; for a refused request the one that waits longest. */
function describedBucket({ outcome, buckets }: LimitStatus): BucketState {
  const refused = outcome !== 'admitted';
  const tighter = (a: BucketState, b: BucketState) =>
    refused ? ticksUntilToken(b, b.limit, b.window) > ticksUntilToken(a, a.limit, a.window) : b.tokens < a.tokens;
  return buckets.reduce((tightest, bucket) => (tighter(tightest, bucket) ? bucket : tightest));
}

const remainingOf = ({ outcome }: LimitStatus, { tokens }: BucketState): number =>
  outcome === 'admitted' ? Math.max(0, tokens) : 0;

/** The Unix second at which the bucket is full again, or the ban over. */
const resetAt = (status: LimitStatus, bucket: BucketState): number =>
  Math.ceil((status.now + ticksUntilReset(status, bucket)) / SECOND);

function ticksUntilReset({ outcome, now, bannedUntil }: LimitStatus, bucket: BucketState): number {
  return outcome === 'banned' ? bannedUntil - now : ticksUntilFull(bucket, bucket.limit, bucket.window);
}

/**
 * Two lists of strings with parameters (RFC 9651). Policy: q requests in w seconds. Limit: r requests in t seconds, where r to
 * t is the rate of the refill, so that a client that spreads r over t is not refused and loses nothing. A refusal names the
 * limit that refused, and its t is Retry-After.
 */
function rateLimitFields(status: LimitStatus, described: BucketState, retryAfter: number | undefined): string[] {
  const { outcome, buckets } = status;
  const policies = buckets.map(({ name, limit, window }) => `"${name}";q=${limit};w=${window / SECOND}`);
  const told = outcome === 'admitted' ? buckets : [described];
  const limits = told.map((bucket) => {
    const { name, limit, window } = bucket;
    const r = remainingOf(status, bucket);
    const t = retryAfter ?? Math.ceil(ticksOf(bucket, limit, window) / SECOND);
    return `"${name}";r=${r};t=${t}${bucket === described ? asComments(status, described, r) : ''}`;
  });
  return ['RateLimit-Policy', policies.join(', '), 'RateLimit', limits.join(', ')];
}

/** Ticks in which the refill brings what is left; where nothing is left, until the next token. */
function ticksOf(bucket: BucketState, limit: number, window: number): number {
  return bucket.tokens < 1 ? ticksUntilNextToken(bucket, limit, window) : (bucket.tokens * window) / limit;
}

/** For parsers of an earlier draft, which look for these names anywhere. To all others, parameters of a vendor's own. */
function asComments(status: LimitStatus, bucket: BucketState, remaining: number): string {
  const reset = Math.ceil(ticksUntilReset(status, bucket) / SECOND);
  return `;store-limit=${bucket.limit};store-remaining=${remaining};store-reset=${reset}`;
}
