import { ticksUntilFull } from '../access/bucket.ts';
import type { KeyFacts } from '../access/key-facts.ts';
import { type BucketState, type Decision, SECOND } from '../access/verdict.ts';
import { retryAfterSeconds } from './limit-headers.ts';

/** The body of GET /v1/limits, as the interface has it. Times are Unix seconds, but for `expiresAt`, which is as it was given. */
export function describeLimits(decision: Decision, { name, expiresAt }: KeyFacts) {
  const [minute, day] = decision.buckets as readonly [BucketState, BucketState];
  const until = Math.ceil(decision.bannedUntil / SECOND);
  return {
    name,
    plan: decision.plan,
    minute: describeBucket(minute, decision.now),
    day: describeBucket(day, decision.now),
    ban: decision.outcome === 'banned' ? { until, retryAfter: retryAfterSeconds(decision) } : null,
    scope: ['read', 'write'],
    expiresAt: expiresAt === undefined ? null : new Date(expiresAt / 1_000).toISOString(),
  };
}

function describeBucket(bucket: BucketState, now: number) {
  const { limit, tokens, window } = bucket;
  const reset = Math.ceil((now + ticksUntilFull(bucket, limit, window)) / SECOND);
  return { limit, remaining: tokens, reset, refillPerSecond: (limit * SECOND) / window };
}
