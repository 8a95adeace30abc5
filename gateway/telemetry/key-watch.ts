import { boundedMap } from '../../shared/bounded-map.ts';
import { ticksUntil } from '../limiter/bucket.ts';
import { DAY } from '../limiter/clock.ts';
import type { BucketState, Decision, Verdict } from '../limiter/limiter.ts';
import { PLAN_NAMES, type PlanName } from '../limiter/plans.ts';

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
  readonly #keys = boundedMap<string, WatchedKey>(MAX_KEYS);
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

/** A key is counted for one to two windows after its last request. */
const WINDOW_MS = 300_000;
/** More keys than that are not counted. */
const MAX_KEYS_PER_WINDOW = 10_000;

interface HeardKey {
  plan: PlanName;
  isRefused: boolean;
}

/**
 * Counts the keys that ask and those that are refused, by plan. One client that never stops is many refusals and one
 * key; a limit that is too low is many keys. A request costs one lookup.
 */
export class RecentKeys {
  readonly #monotonic: () => number;
  #now = new Map<string, HeardKey>();
  #before: ReadonlyMap<string, HeardKey> = new Map();
  #since: number;

  /** @param monotonic milliseconds that never go back */
  constructor(monotonic: () => number) {
    this.#monotonic = monotonic;
    this.#since = monotonic();
  }

  note(keyId: string, { plan, outcome }: Decision): void {
    this.#turn();
    const isRefused = outcome === 'refused';
    const known = this.#now.get(keyId);
    if (known === undefined) {
      if (this.#now.size < MAX_KEYS_PER_WINDOW) this.#now.set(keyId, { plan, isRefused });
      return;
    }
    known.plan = plan;
    known.isRefused ||= isRefused;
  }

  /** The number of keys of each plan that were decided on. */
  asking(): ReadonlyMap<PlanName, number> {
    return this.#count(() => true);
  }

  /** The number of keys of each plan that were refused for their limits. */
  refused(): ReadonlyMap<PlanName, number> {
    return this.#count(({ isRefused }) => isRefused);
  }

  #count(isWanted: (key: HeardKey) => boolean): ReadonlyMap<PlanName, number> {
    this.#turn();
    const plans = new Map<string, PlanName>();
    for (const window of [this.#before, this.#now])
      for (const [keyId, key] of window) if (isWanted(key)) plans.set(keyId, key.plan);
    const counts = new Map<PlanName, number>(PLAN_NAMES.map((plan) => [plan, 0]));
    for (const plan of plans.values()) counts.set(plan, (counts.get(plan) ?? 0) + 1);
    return counts;
  }

  /** Begins a new window when the present one is over. */
  #turn(): void {
    const now = this.#monotonic();
    const age = now - this.#since;
    if (age < WINDOW_MS) return;
    this.#before = age < 2 * WINDOW_MS ? this.#now : new Map();
    this.#now = new Map();
    this.#since = now;
  }
}

const MINUTE_MS = 60_000;
/** Keys that one process tells apart in a minute. */
const MAX_KEYS_PER_MINUTE = 1_000;

/** The keys that had a request refused by a ban in a minute, counted since 1970. */
export interface KeysOfMinute {
  readonly minute: number;
  readonly ids: readonly string[];
}

/** Tells the banned keys of the current minute apart, so that operators see keys and not only requests. */
export class BannedKeys {
  readonly #now: () => number;
  #minute = -1;
  #ids = new Set<string>();

  /** @param now Unix time in ms */
  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  note(keyId: string | undefined, { outcome }: Verdict): void {
    if (outcome !== 'banned' || keyId === undefined) return;
    const minute = Math.floor(this.#now() / MINUTE_MS);
    if (minute !== this.#minute) {
      this.#minute = minute;
      this.#ids = new Set();
    }
    if (this.#ids.size < MAX_KEYS_PER_MINUTE) this.#ids.add(keyId);
  }

  /** Those of the last minute that had any. */
  latest(): KeysOfMinute {
    return { minute: this.#minute, ids: [...this.#ids] };
  }
}
