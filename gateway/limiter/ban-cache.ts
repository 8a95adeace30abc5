import { boundedMap } from '../../shared/bounded-map.ts';
import { refill } from './bucket.ts';
import { ChangedKeys } from './changed-keys.ts';
import { monotonicClock, SECOND } from './clock.ts';
import { type Credential, isFromAllowedNetwork } from './credential.ts';
import type { Decision, Limiter } from './limiter.ts';

/** When an operator of another gateway lifts a ban, it is over here after this time. */
const MEMORY = SECOND;
const MAX_BANS = 10_000;

interface RememberedBan {
  readonly id: string;
  readonly decision: Decision;
  readonly since: number;
}

/**
 * A limiter that remembers a running ban for one second at a time. A banned client then costs at most one decision per
 * second. Bans are remembered by id and digest: a wrong secret must not reveal that the key is banned.
 * @param monotonic microseconds that never go back
 */
export function rememberBans(
  limiter: Limiter,
  monotonic = monotonicClock,
  changed = new ChangedKeys(monotonic),
): Limiter & { bans(): number } {
  const bans = boundedMap<string, RememberedBan>(MAX_BANS);

  /** From outside its networks, a secret reveals nothing. */
  function recall({ cacheKey, id, use }: Credential): Decision | undefined {
    const ban = bans.get(cacheKey);
    const { bounds } = ban?.decision ?? {};
    if (ban === undefined || (bounds !== undefined && !isFromAllowedNetwork(bounds, use))) return undefined;
    const elapsed = monotonic() - ban.since;
    const decision = later(ban.decision, elapsed);
    const isCurrent = elapsed < MEMORY && !changed.hasChangedSince(id, ban.since);
    if (isCurrent && decision.now < decision.bannedUntil) return decision;
    bans.delete(cacheKey);
    return undefined;
  }

  return {
    async decide(credential: Credential) {
      const recalled = recall(credential);
      if (recalled !== undefined) return recalled;
      const askedAt = monotonic();
      const verdict = await limiter.decide(credential);
      const { id, cacheKey } = credential;
      if (verdict.outcome === 'banned' && !changed.hasChangedSince(id, askedAt))
        bans.set(cacheKey, { id, decision: verdict, since: monotonic() });
      return verdict;
    },
    peek: (credential: Credential) => limiter.peek(credential),
    /** The number of keys whose ban is still running according to the last decision. */
    bans() {
      const now = monotonic();
      const runs = ({ id, decision, since }: RememberedBan) =>
        decision.bannedUntil > decision.now + now - since && !changed.hasChangedSince(id, since);
      const running = [...bans.values()].filter(runs);
      return new Set(running.map(({ id }) => id)).size;
    },
  };
}

function later(decision: Decision, elapsed: number): Decision {
  const buckets = decision.buckets.map((bucket) => ({
    ...bucket,
    ...refill(bucket, bucket.limit, bucket.window, elapsed),
  }));
  return { ...decision, now: decision.now + elapsed, buckets };
}
