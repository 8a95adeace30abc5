import { ticksUntilFull } from '../access/bucket.ts';
import { look } from '../access/decide.ts';
import { inactiveReason, type KeyEntry } from '../access/keys.ts';
import { isPlanName, type PlanTable } from '../access/plans.ts';
import type { BucketState } from '../access/verdict.ts';

/** A key as operators see it at a moment, in microseconds; its secrets are no part of it. */
export function describeKey(entry: KeyEntry, now: number) {
  const { id, record, bannedUntil, banReason, bans, admitted, refused, shadowed } = entry;
  const isBanned = bannedUntil > now;
  const { oldSecretUntil = 0 } = record;
  return {
    id,
    name: record.name,
    plan: record.plan,
    minute: record.minute,
    day: record.day,
    state: stateOf(entry, now),
    createdAt: toTime(record.createdAt),
    expiresAt: record.expiresAt === undefined ? undefined : toTime(record.expiresAt),
    oldSecretUntil: oldSecretUntil > now ? toTime(oldSecretUntil) : undefined,
    bannedUntil: isBanned ? toTime(bannedUntil) : undefined,
    banReason: isBanned && banReason?.until === bannedUntil ? banReason.text || undefined : undefined,
    bans,
    admitted,
    refused,
    shadowed: shadowed || undefined,
  };
}

/** The same with both buckets as they stand; without them where the key has no limits to go by. */
export function describeKeyInFull(entry: KeyEntry, plans: PlanTable, now: number) {
  const { plan } = entry.record;
  const buckets = isPlanName(plan) ? look(entry.record, entry, plans[plan], now) : undefined;
  if (buckets === undefined) return describeKey(entry, now);
  const [minute, day] = buckets;
  return {
    ...describeKey(entry, now),
    buckets: { minute: describeBucket(minute, now), day: describeBucket(day, now) },
  };
}

function describeBucket(bucket: BucketState, now: number) {
  const { limit, tokens, window } = bucket;
  return {
    limit,
    remaining: tokens,
    used: limit - tokens,
    fullAt: tokens === limit ? undefined : toTime(now + ticksUntilFull(bucket, limit, window)),
  };
}

/** In the order in which a decision asks. */
function stateOf({ isReadable, record, bannedUntil }: KeyEntry, now: number): string {
  if (!isReadable) return 'unreadable';
  return inactiveReason(record, now) ?? (bannedUntil > now ? 'banned' : 'active');
}

export const toTime = (microseconds: number): string => new Date(microseconds / 1_000).toISOString();
