import { refill } from './bucket.ts';
import type { Credential } from './credential.ts';
import type { Limiter } from './limiter.ts';
import { type Decision, SECOND } from './verdict.ts';

/** A ban that an operator lifts is over for everyone after this time. */
const MEMORY = SECOND;
const MAX_BANS = 10_000;

interface RememberedBan {
  readonly decision: Decision;
  readonly since: number;
}

/**
 * A limiter that remembers a running ban for one second at a time, so that a banned client who keeps hammering costs at
 * most one decision a second. It is remembered by id and digest: a wrong secret must not learn that the key is banned.
 * @param monotonic microseconds that only ever grow
 */
export function rememberBans(
  limiter: Limiter,
  monotonic = () => Math.floor(performance.now() * 1_000),
): Limiter & { bans(): number } {
  const bans = new Map<string, RememberedBan>();

  function recall(name: string): Decision | undefined {
    const ban = bans.get(name);
    if (ban === undefined) return undefined;
    const elapsed = monotonic() - ban.since;
    const decision = later(ban.decision, elapsed);
    if (elapsed < MEMORY && decision.now < decision.bannedUntil) return decision;
    bans.delete(name);
    return undefined;
  }

  function remember(name: string, decision: Decision): void {
    if (bans.size >= MAX_BANS) bans.delete(bans.keys().next().value as string);
    bans.set(name, { decision, since: monotonic() });
  }

  return {
    async decide(credential: Credential) {
      const { cacheKey } = credential;
      const recalled = recall(cacheKey);
      if (recalled !== undefined) return recalled;
      const verdict = await limiter.decide(credential);
      if (verdict.outcome === 'banned') remember(cacheKey, verdict);
      return verdict;
    },
    peek: (credential: Credential) => limiter.peek(credential),
    /** Those that would still run by what was last heard of them. */
    bans() {
      const now = monotonic();
      const runs = ({ decision, since }: RememberedBan) => decision.bannedUntil > decision.now + now - since;
      return [...bans.values()].filter(runs).length;
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
