import { SECOND, ticksUntilFull } from '../../limiter/bucket.ts';
import { inactiveReason, type Secret } from '../../limiter/credential.ts';
import { bucketsAt } from '../../limiter/decide.ts';
import { isTooSmall } from '../../limiter/estimates.ts';
import { type KeyEntry, usedOfDay } from '../../limiter/key-record.ts';
import type { BucketState } from '../../limiter/limiter.ts';
import { describeNetwork } from '../../limiter/networks.ts';
import { isPlanName, type PlanTable } from '../../limiter/plans.ts';
import type { Tags } from '../../limiter/tags.ts';

/** A secret as operators see it: everything except its digest. */
export const describeSecret = (
  { id, name, scope, networks, createdAt, expiresAt, unreadable }: Secret,
  used: KeyEntry['used'],
) => ({
  id,
  name,
  scope,
  networks: networks.map(describeNetwork),
  createdAt: toTime(createdAt),
  expiresAt: expiresAt === undefined ? undefined : toTime(expiresAt),
  unreadable,
  lastUsedAt: used[id] === undefined ? undefined : toTime(used[id]),
});

/** Tags are left out if there are none. */
export const shownTags = (tags: Tags = {}): Tags | undefined => (Object.keys(tags).length === 0 ? undefined : tags);

/** A key as operators see it at a time in microseconds, without the digests of its secrets. */
export function describeKey(entry: KeyEntry, now: number) {
  const { id, record, admitted, refused, shadowed, refusals } = entry;
  return {
    id,
    name: record.name,
    plan: record.plan,
    tags: shownTags(record.tags),
    minute: record.minute,
    day: record.day,
    state: stateOf(entry, now),
    createdAt: toTime(record.createdAt),
    expiresAt: record.expiresAt === undefined ? undefined : toTime(record.expiresAt),
    lastUsedAt: entry.asOf === undefined ? undefined : toTime(entry.asOf),
    secrets: record.secrets
      .filter(({ expiresAt = Infinity }) => expiresAt > now)
      .map((secret) => describeSecret(secret, entry.used)),
    ...banOf(entry, now),
    // What a request that is refused now would be told to wait.
    waitSeconds: refusals.lineUntil > now ? Math.ceil((refusals.lineUntil - now) / SECOND) : undefined,
    tooSmall: isTooSmall(entry, now) || undefined,
    admitted,
    refused,
    shadowed: shadowed || undefined,
  };
}

/** The running ban of a key. */
export function banOf({ bannedUntil, banReason, bans }: KeyEntry, now: number) {
  const isBanned = bannedUntil > now;
  return {
    bannedUntil: isBanned ? toTime(bannedUntil) : undefined,
    banReason: isBanned && banReason?.until === bannedUntil ? banReason.text || undefined : undefined,
    /** ban-refusals.ts fills it in, for lists of running bans. */
    banRefused: undefined as number | undefined,
    bans,
  };
}

/** Adds the current state of both buckets, which are left out if the key has no usable limits. */
export function describeKeyInFull(entry: KeyEntry, plans: PlanTable, now: number) {
  const { plan } = entry.record;
  const buckets = isPlanName(plan) ? bucketsAt(entry.record, entry, plans[plan], now) : undefined;
  if (buckets === undefined) return describeKey(entry, now);
  const [minute, day] = buckets;
  return {
    ...describeKey(entry, now),
    buckets: {
      minute: describeBucket(minute, now, minute.limit - minute.tokens),
      day: describeBucket(day, now, usedOfDay(day, entry, now)),
    },
  };
}

function describeBucket(bucket: BucketState, now: number, used: number) {
  const { limit, tokens, window } = bucket;
  return {
    limit,
    remaining: tokens,
    used,
    fullAt: tokens === limit ? undefined : toTime(now + ticksUntilFull(bucket, limit, window)),
  };
}

export const KEY_STATES = ['active', 'banned', 'disabled', 'expired', 'unreadable'] as const;

/** Follows the order of the checks in a decision. */
export function stateOf({ isReadable, record, bannedUntil }: KeyEntry, now: number): (typeof KEY_STATES)[number] {
  if (!isReadable) return 'unreadable';
  return inactiveReason(record, now) ?? (bannedUntil > now ? 'banned' : 'active');
}

export const toTime = (microseconds: number): string => new Date(microseconds / 1_000).toISOString();
