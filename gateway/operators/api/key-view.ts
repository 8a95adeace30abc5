import { SECOND, ticksUntilFull } from '../../limiter/bucket.ts';
import { inactiveReason, type Secret } from '../../limiter/credential.ts';
import { bucketsAt } from '../../limiter/decide.ts';
import { isTooSmall } from '../../limiter/estimates.ts';
import { type KeyEntry, MINUTES_KEPT, usedOfDay } from '../../limiter/key-record.ts';
import type { BucketState } from '../../limiter/limiter.ts';
import { describeNetwork } from '../../limiter/networks.ts';
import { isPlanName, type PlanTable } from '../../limiter/plans.ts';
import type { Tags } from '../../limiter/tags.ts';
import type { BanView, KeyView } from './answers.ts';
import type { KEY_STATES } from './key-order.ts';
import type { AdminDependencies } from './operation.ts';

/** A secret as operators see it: everything except its digest. */
export const describeSecret = (
  { id, name, scope, networks, createdAt, expiresAt, unreadable }: Secret,
  { [id]: usedAt }: KeyEntry['used'],
) => ({
  id,
  name,
  scope,
  networks: networks.map(describeNetwork),
  createdAt: toTime(createdAt),
  expiresAt: shownTime(expiresAt),
  unreadable,
  // Stored to the minute, so it can be earlier than the creation.
  lastUsedAt: usedAt === undefined ? undefined : toTime(Math.max(usedAt, createdAt)),
});

/** Tags are left out if there are none. */
export const shownTags = (tags: Tags = {}): Tags | undefined => (Object.keys(tags).length === 0 ? undefined : tags);

/** Keys as operators see them, without the digests of their secrets. @param now in microseconds */
export const describeKeys = (deps: BanDependencies, entries: readonly KeyEntry[], now: number) =>
  withBanRefusals(
    deps,
    entries.map((entry) => describeKey(entry, deps.planCache.table, now)),
  );

function describeKey(entry: KeyEntry, plans: PlanTable, now: number) {
  const { id, record, admitted, refused, shadowed, refusals } = entry;
  return {
    id,
    name: record.name,
    plan: record.plan,
    tags: shownTags(record.tags),
    minute: record.minute,
    day: record.day,
    state: stateOf(entry, plans, now),
    createdAt: toTime(record.createdAt),
    expiresAt: shownTime(record.expiresAt),
    lastUsedAt: shownTime(entry.asOf),
    secrets: record.secrets
      .filter(({ expiresAt = Infinity }) => expiresAt > now)
      .map((secret) => describeSecret(secret, entry.used)),
    ...banOf(entry, plans, now),
    // The Retry-After that a request refused now would get.
    waitSeconds: refusals.lineUntil > now ? Math.ceil((refusals.lineUntil - now) / SECOND) : undefined,
    tooSmall: isTooSmall(entry, now) || undefined,
    admitted,
    refused,
    shadowed: shadowed || undefined,
    buckets: describeBuckets(entry, plans, now),
  };
}

function describeBuckets(entry: KeyEntry, plans: PlanTable, now: number) {
  const [minute, day] = bucketsIn(entry, plans, now) ?? [];
  if (minute === undefined || day === undefined) return undefined;
  return {
    minute: describeBucket(minute, now, minute.limit - minute.tokens),
    day: describeBucket(day, now, usedOfDay(day, entry, now)),
  };
}

/** Whether a key has an active ban. As in a decision, a plan in shadow mode ignores the bans that decisions set. */
export function isBanned({ record, bannedUntil, banReason }: KeyEntry, plans: PlanTable, now: number): boolean {
  const isShadowed = isPlanName(record.plan) && plans[record.plan].mode === 'shadow';
  return bannedUntil > now && (!isShadowed || banReason?.until === bannedUntil);
}

/** The reason of a ban for which an operator gave none. Only the bans that decisions set have no reason. */
const NO_REASON = 'Set by an operator, who gave no reason';

function banOf(entry: KeyEntry, plans: PlanTable, now: number) {
  const { bannedUntil, banReason, bans } = entry;
  const isRunning = isBanned(entry, plans, now);
  const byOperator = isRunning && banReason?.until === bannedUntil ? banReason : undefined;
  return {
    bannedUntil: isRunning ? toTime(bannedUntil) : undefined,
    banReason: byOperator && (byOperator.text || NO_REASON),
    bannedSince: shownTime(byOperator?.since),
    /** Filled in by `withBanRefusals`. */
    banRefused: undefined as number | undefined,
    banRefusedMore: undefined as boolean | undefined,
    bans,
  };
}

/** Both buckets of a key; undefined without usable limits. */
export function bucketsIn(entry: KeyEntry, plans: PlanTable, now: number) {
  const { plan } = entry.record;
  return isPlanName(plan) ? bucketsAt(entry.record, entry, plans[plan], now) : undefined;
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

/** Follows the order of the checks in a decision. */
export function stateOf(entry: KeyEntry, plans: PlanTable, now: number): (typeof KEY_STATES)[number] {
  if (!entry.isReadable) return 'unreadable';
  return inactiveReason(entry.record, now) ?? (isBanned(entry, plans, now) ? 'banned' : 'active');
}

export const toTime = (microseconds: number): string => new Date(microseconds / 1_000).toISOString();
export const shownTime = (microseconds: number | undefined): string | undefined =>
  microseconds === undefined ? undefined : toTime(microseconds);

type Counts = Readonly<Record<'admitted' | 'refused', number>>;

export const sumsOf = (counts: readonly Counts[]): Counts => ({
  admitted: counts.reduce((total, { admitted }) => total + admitted, 0),
  refused: counts.reduce((total, { refused }) => total + refused, 0),
});

/**
 * Counts the requests that bans have refused. No store counts them, because a gateway that knows of a ban does not call
 * the store. The count is therefore a sum over the recent requests of all gateways, including repeated ones. It is too
 * low if a process does not respond, started after the ban began, or has overwritten requests since then.
 */

type BanDependencies = Pick<AdminDependencies, 'requests' | 'planCache'>;

async function withBanRefusals<K extends Pick<KeyView, 'id' | 'bannedUntil' | 'bannedSince'>>(
  { requests }: BanDependencies,
  keys: readonly K[],
): Promise<(K & Pick<BanView, 'banRefused' | 'banRefusedMore'>)[]> {
  const bansOf = keys.flatMap(({ id, bannedUntil }) => (bannedUntil === undefined ? [] : [id]));
  if (bansOf.length === 0) return [...keys];
  const { requests: found, missing, since } = await requests.find({ bansOf, limit: 1 });
  const refused = Map.groupBy(found, ({ keyId, decision }) => nameOf(keyId, decision?.bannedUntil));
  return keys.map((key) => {
    if (key.bannedUntil === undefined) return key;
    const those = refused.get(nameOf(key.id, key.bannedUntil)) ?? [];
    const began = key.bannedSince ?? those.find(({ banBeganAt }) => banBeganAt !== undefined)?.banBeganAt;
    const isWhole = missing.length === 0 && began !== undefined && Date.parse(began) >= since;
    return { ...key, banRefused: countOf(those), banRefusedMore: !isWhole || undefined };
  });
}

/**
 * The active bans by the id of the key, for responses that do not describe the whole key.
 * @param now in microseconds
 * @param isCounted whether to count the requests that the bans have refused on all gateways
 */
export async function runningBans(
  deps: BanDependencies,
  entries: readonly KeyEntry[],
  now: number,
  isCounted = true,
): Promise<ReadonlyMap<string, BanView>> {
  const { table } = deps.planCache;
  const banned = entries.filter((entry) => isBanned(entry, table, now));
  const bans = banned.map((entry) => ({ id: entry.id, ...banOf(entry, table, now) }));
  return new Map((isCounted ? await withBanRefusals(deps, bans) : bans).map(({ id, ...ban }) => [id, ban]));
}

const MINUTE_MS = 60_000;

/**
 * Counts the requests of the last hour that bans on a key refused, by minute.
 * @param now in minutes since 1970
 * @returns also from when on the counts are complete, in Unix ms; undefined if a process does not respond
 */
export async function refusedByBans({ requests }: BanDependencies, id: string, now: number) {
  const from = (now - MINUTES_KEPT + 1) * MINUTE_MS;
  const found = await requests.find({ bansOf: [id], isByMinute: true, from, limit: 1 });
  const byMinute = Map.groupBy(found.requests, ({ at }) => Math.floor(Date.parse(at) / MINUTE_MS));
  return {
    refused: new Map([...byMinute].map(([minute, those]) => [minute, countOf(those)])),
    since: found.missing.length === 0 ? found.since : undefined,
  };
}

const countOf = (requests: readonly { readonly repeated: number }[] = []): number =>
  requests.reduce((sum, { repeated }) => sum + 1 + repeated, 0);

/** The ends of bans are compared in milliseconds, because only those in decisions have microseconds. */
const nameOf = (id = '', until = ''): string => `${id} ${Date.parse(until)}`;
