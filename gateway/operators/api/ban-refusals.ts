import { type KeyEntry, MINUTES_KEPT } from '../../limiter/key-record.ts';
import type { BanView, KeySummary } from './answers.ts';
import { banOf } from './key-view.ts';
import type { AdminDependencies } from './operation.ts';

/**
 * How many requests bans have refused. No store counts that, because a gateway that knows of a ban makes no call. It is
 * therefore the sum over the last requests of all gateways, in which repeated ones are counted. It is too low after a
 * restart, or once older requests have left the list.
 */

type Requests = Pick<AdminDependencies, 'requests'>;

/** Adds what running bans have refused. */
export async function withBanRefusals<K extends Pick<KeySummary, 'id' | 'bannedUntil'>>(
  { requests }: Requests,
  keys: readonly K[],
): Promise<(K & Pick<BanView, 'banRefused'>)[]> {
  const bansOf = keys.flatMap(({ id, bannedUntil }) => (bannedUntil === undefined ? [] : [id]));
  if (bansOf.length === 0) return [...keys];
  const refused = new Sums();
  for (const { keyId, decision, repeated } of (await requests.find({ bansOf, limit: 1 })).requests)
    refused.add(nameOf(keyId, decision?.bannedUntil), 1 + repeated);
  return keys.map((key) =>
    key.bannedUntil === undefined ? key : { ...key, banRefused: refused.get(nameOf(key.id, key.bannedUntil)) ?? 0 },
  );
}

/**
 * The running bans of keys, by the keys' ids, at a time in microseconds.
 * @param isCounted whether to ask all gateways what the bans have refused
 */
export async function runningBans(
  deps: Requests,
  entries: readonly KeyEntry[],
  now: number,
  isCounted: boolean,
): Promise<ReadonlyMap<string, BanView>> {
  const banned = entries.filter(({ bannedUntil }) => bannedUntil > now);
  const bans = banned.map((entry) => ({ id: entry.id, ...banOf(entry, now) }));
  return new Map((isCounted ? await withBanRefusals(deps, bans) : bans).map(({ id, ...ban }) => [id, ban]));
}

const MINUTE_MS = 60_000;

/** What bans of a key have refused in the last hour, by minutes since 1970. @param now in the same unit */
export async function refusedByBans(
  { requests }: Requests,
  id: string,
  now: number,
): Promise<ReadonlyMap<number, number>> {
  const from = (now - MINUTES_KEPT + 1) * MINUTE_MS;
  const found = await requests.find({ bansOf: [id], isByMinute: true, from, limit: 1 });
  const refused = new Sums<number>();
  for (const { at, repeated } of found.requests) refused.add(Math.floor(Date.parse(at) / MINUTE_MS), 1 + repeated);
  return refused;
}

class Sums<Name = string> extends Map<Name, number> {
  add(name: Name, count: number): void {
    this.set(name, (this.get(name) ?? 0) + count);
  }
}

/** Decisions have microseconds, so the times are compared in milliseconds. */
const nameOf = (id = '', until = ''): string => `${id} ${Date.parse(until)}`;
