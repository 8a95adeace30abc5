import { ticksUntilFull } from '../limiter/bucket.ts';
import { SECOND } from '../limiter/clock.ts';
import { SCOPES } from '../limiter/secrets.ts';
import type { BucketState, Decision } from '../limiter/verdict.ts';
import type { KeyFacts } from '../stores/key-facts.ts';
import { retryAfterSeconds } from './limit-headers.ts';

/** The body of GET /v1/limits. Times are Unix seconds, except `expiresAt`, which is ISO 8601. */
export function describeLimits(decision: Decision, { name, expiresAt }: KeyFacts) {
  const [minute, day] = decision.buckets as readonly [BucketState, BucketState];
  const until = Math.ceil(decision.bannedUntil / SECOND);
  return {
    name,
    plan: decision.plan,
    minute: describeBucket(minute, decision.now),
    day: describeBucket(day, decision.now),
    ban: decision.outcome === 'banned' ? { until, retryAfter: retryAfterSeconds(decision) } : null,
    scope: decision.bounds?.scope ?? SCOPES,
    expiresAt: expiresAt === undefined ? null : new Date(expiresAt / 1_000).toISOString(),
  };
}

function describeBucket(bucket: BucketState, now: number) {
  const { limit, tokens, window } = bucket;
  const reset = Math.ceil((now + ticksUntilFull(bucket, limit, window)) / SECOND);
  return { limit, remaining: tokens, reset, refillPerSecond: (limit * SECOND) / window };
}
