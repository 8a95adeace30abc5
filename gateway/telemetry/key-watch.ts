import { LRUCache } from 'lru-cache';
import { ticksUntil } from '../limiter/bucket.ts';
import { DAY } from '../limiter/clock.ts';
import { PLAN_NAMES, type PlanName } from '../limiter/plans.ts';
import type { BucketState, Decision, Verdict } from '../limiter/verdict.ts';
import { RecentKeys } from './recent-keys.ts';

/** Events of a key: it has used 80 % of its day limit, or all of it, or it is banned. */
export const KEY_EVENTS = ['day_80', 'day_100', 'banned'] as const;
export type KeyEvent = (typeof KEY_EVENTS)[number];

/** A key is near its limit if at most this fraction is left: 80 % is used. */
const LEFT_PARTS = 5;
const MAX_KEYS = 10_000;

interface WatchedKey {
  plan: PlanName;
  /** The day bucket after the last decision. */
  day: BucketState;
  heardAt: number;
  /** The day (UTC, days since 1970) on which each event was last reported. */
  readonly toldOn: { [event in KeyEvent]?: number };
}

/**
 * Watches decisions for keys near their day limit. A key below 80 % costs one comparison. At most 10,000 keys are
 * remembered, the most recent ones.
 */
export class KeyWatch {
  /** Keys that ask, and those that are refused. */
  readonly recent: RecentKeys;
  readonly #keys = new LRUCache<string, WatchedKey>({ max: MAX_KEYS });
  readonly #tell: (event: KeyEvent, keyId: string, decision: Decision) => void;
  readonly #monotonic: () => number;

  /**
   * @param tell called once per key, event and UTC day, as far as this process remembers
   * @param monotonic milliseconds that never go back
   */
  constructor(tell: (event: KeyEvent, keyId: string, decision: Decision) => void, monotonic = () => performance.now()) {
    this.#tell = tell;
    this.#monotonic = monotonic;
    this.recent = new RecentKeys(monotonic);
  }

  note(keyId: string | undefined, verdict: Verdict): void {
    if (keyId === undefined || !('buckets' in verdict)) return;
    this.recent.note(keyId, verdict);
    const day = verdict.buckets[1] as BucketState;
    const isNear = day.tokens * LEFT_PARTS <= day.limit;
    const isBanned = verdict.outcome === 'banned';
    if (!isNear && !isBanned) return;
    const key = this.#keep(keyId, verdict.plan, day);
    if (isNear) this.#tellOnce('day_80', key, keyId, verdict);
    if (day.tokens < 1) this.#tellOnce('day_100', key, keyId, verdict);
    if (isBanned) this.#tellOnce('banned', key, keyId, verdict);
  }

  /** The number of keys of each plan near their day limit. A bucket refills without a decision. */
  *near(): Iterable<[plan: PlanName, keys: number]> {
    const counts = new Map<PlanName, number>(PLAN_NAMES.map((plan) => [plan, 0]));
    const now = this.#monotonic();
    for (const { plan, day, heardAt } of this.#keys.values())
      if ((now - heardAt) * 1_000 < ticksUntilFar(day)) counts.set(plan, (counts.get(plan) ?? 0) + 1);
    yield* counts;
  }

  #keep(keyId: string, plan: PlanName, day: BucketState): WatchedKey {
    const heardAt = this.#monotonic();
    const known = this.#keys.get(keyId);
    if (known !== undefined) return Object.assign(known, { plan, day, heardAt });
    const key: WatchedKey = { plan, day, heardAt, toldOn: {} };
    this.#keys.set(keyId, key);
    return key;
  }

  #tellOnce(event: KeyEvent, key: WatchedKey, keyId: string, decision: Decision): void {
    const today = Math.floor(decision.now / DAY);
    if (key.toldOn[event] === today) return;
    key.toldOn[event] = today;
    this.#tell(event, keyId, decision);
  }
}

/** Ticks until less than 80 % is used; 0 if that is already so. */
const ticksUntilFar = (day: BucketState): number =>
  ticksUntil(Math.floor(day.limit / LEFT_PARTS) + 1, day, day.limit, day.window);
