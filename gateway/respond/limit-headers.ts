import { ticksUntilFull, ticksUntilNextToken, ticksUntilToken } from '../access/bucket.ts';
import { type BucketState, SECOND, type Standing } from '../access/verdict.ts';

/**
 * All that a client is told about its limits, derived from where it stands: X-RateLimit-*, Retry-After where it was
 * refused, and the fields of draft-ietf-httpapi-ratelimit-headers-10 unless they are switched off.
 */
export function limitHeaders(standing: Standing, draftFields: boolean): string[] {
  const bucket = describedBucket(standing);
  const headers = [
    'X-RateLimit-Limit',
    String(bucket.limit),
    'X-RateLimit-Remaining',
    String(standing.outcome === 'admitted' ? bucket.tokens : 0),
    'X-RateLimit-Reset',
    String(resetAt(standing, bucket)),
  ];
  const retryAfter = retryAfterSeconds(standing);
  if (draftFields) headers.push(...rateLimitFields(standing, retryAfter));
  if (retryAfter !== undefined) headers.push('Retry-After', String(retryAfter));
  return headers;
}

/**
 * Seconds after which the caller is to come again; undefined where it was admitted. A refused request waits for its place
 * behind the others that wait; a banned one for the end of the ban, and for a token where there is none by then.
 */
export function retryAfterSeconds({ outcome, now, buckets, bannedUntil, retryAt }: Standing): number | undefined {
  if (outcome === 'admitted') return undefined;
  const waits = buckets.map((bucket) => ticksUntilToken(bucket, bucket.limit, bucket.window));
  if (outcome === 'banned') waits.push(bannedUntil - now);
  else if (retryAt !== undefined) waits.push(retryAt - now);
  return Math.max(1, Math.ceil(Math.max(...waits) / SECOND));
}

/** The bucket with the fewest requests left; for a refused request the one that waits longest. */
function describedBucket({ outcome, buckets }: Standing): BucketState {
  const refused = outcome !== 'admitted';
  const tighter = (a: BucketState, b: BucketState) =>
    refused ? ticksUntilToken(b, b.limit, b.window) > ticksUntilToken(a, a.limit, a.window) : b.tokens < a.tokens;
  return buckets.reduce((tightest, bucket) => (tighter(tightest, bucket) ? bucket : tightest));
}

/** The Unix second at which the bucket is full again, or the ban over. */
function resetAt({ outcome, now, bannedUntil }: Standing, bucket: BucketState): number {
  const at = outcome === 'banned' ? bannedUntil : now + ticksUntilFull(bucket, bucket.limit, bucket.window);
  return Math.ceil(at / SECOND);
}

/** Two lists of strings with parameters (RFC 9651): q quota, w window in seconds; r remaining, t seconds until more. */
function rateLimitFields({ outcome, buckets }: Standing, retryAfter: number | undefined): string[] {
  let policies = '';
  let states = '';
  for (const bucket of buckets) {
    const { name, limit, window, tokens } = bucket;
    const separator = policies === '' ? '' : ', ';
    policies += `${separator}"${name}";q=${limit};w=${window / SECOND}`;
    const isBanned = outcome === 'banned';
    const wait = isBanned ? retryAfter : Math.ceil(ticksUntilNextToken(bucket, limit, window) / SECOND);
    states += `${separator}"${name}";r=${isBanned ? 0 : tokens};t=${wait}`;
  }
  return ['RateLimit-Policy', policies, 'RateLimit', states];
}
