import { DAY, isNear, LEFT_PARTS, MINUTE, monotonicClock, ticksUntil } from '../limiter/bucket.ts';
import type { Client } from '../limiter/client.ts';
import type { Clients } from '../limiter/clients.ts';
import type { BucketState, Decision } from '../limiter/limiter.ts';
import { PLAN_NAMES, type PlanName } from '../limiter/plans.ts';

/**
 * The events of a key: a fifth of its day limit is left, nothing is left, or the key is banned. If a fifth is left only
 * because the limit was raised, no `day_80` is sent (message.ts), not even later that day.
 */
export const KEY_EVENTS = ['day_80', 'day_100', 'banned'] as const;
export type KeyEvent = (typeof KEY_EVENTS)[number];

/** A key that has not been used for this long is not counted. */
const RECENT = 10 * MINUTE;
/** The gauges of one scrape share a count, which is reused for this long. */
const COUNT_EVERY = MINUTE / 240;

type ByPlan = Map<PlanName, number>;

/** Keys in use, by plan, as far as this process knows. */
export interface KeyCounts {
  bans: number;
  /** Keys with a request that was decided in the last ten minutes. */
  readonly asking: ByPlan;
  /** Keys with a request that their limits refused in the last ten minutes. */
  readonly refused: ByPlan;
  /** Keys with at most a fifth of their day limit left. */
  readonly near: ByPlan;
}

/** Watches the keys in use. Its data is kept in memory, in each key's `Client`. Most decisions only set `askedAt`. */
export class KeyWatch {
  readonly #clients: Pick<Clients, 'all' | 'isBanned'>;
  readonly #notify: (event: KeyEvent, keyId: string, decision: Decision) => void;
  readonly #monotonic: () => number;
  #counted: KeyCounts | undefined;
  #countedAt = Number.NEGATIVE_INFINITY;

  /**
   * @param notify called once per key, event and UTC day, as far as this process remembers
   * @param monotonic a clock in microseconds that never goes back
   */
  constructor(
    clients: Pick<Clients, 'all' | 'isBanned'>,
    notify: (event: KeyEvent, keyId: string, decision: Decision) => void,
    monotonic = monotonicClock,
  ) {
    this.#clients = clients;
    this.#notify = notify;
    this.#monotonic = monotonic;
  }

  /** Notes a decision that does not admit the request, or after which little of the day limit is left. */
  note(client: Client, decision: Decision): void {
    const { outcome } = decision;
    if (outcome === 'refused') client.refusedAt = client.askedAt;
    const day = decision.buckets[1] as BucketState;
    if (isNear(day)) this.#notifyOnce('day_80', client, decision);
    if (day.tokens < 1) this.#notifyOnce('day_100', client, decision);
    if (outcome === 'banned') this.#notifyOnce('banned', client, decision);
  }

  counts(): KeyCounts {
    const now = this.#monotonic();
    if (this.#counted !== undefined && now - this.#countedAt < COUNT_EVERY) return this.#counted;
    const none = (): ByPlan => new Map(PLAN_NAMES.map((plan) => [plan, 0]));
    const counts: KeyCounts = { bans: 0, asking: none(), refused: none(), near: none() };
    const add = (to: ByPlan, plan: PlanName) => to.set(plan, (to.get(plan) ?? 0) + 1);
    for (const client of this.#clients.all()) {
      if (client.lastReply === undefined) continue;
      const { plan } = client.lastReply.decision;
      if (now - client.askedAt < RECENT) add(counts.asking, plan);
      if (now - client.refusedAt < RECENT) add(counts.refused, plan);
      if (isStillNear(client, now)) add(counts.near, plan);
      if (this.#clients.isBanned(client)) counts.bans += 1;
    }
    this.#counted = counts;
    this.#countedAt = now;
    return counts;
  }

  #notifyOnce(event: KeyEvent, client: Client, decision: Decision): void {
    const today = Math.floor(decision.now / DAY);
    client.notifiedOn ??= {};
    if (client.notifiedOn[event] === today) return;
    client.notifiedOn[event] = today;
    this.#notify(event, client.id, decision);
  }
}

/** Checks the day limit again, because a bucket refills even without decisions. */
function isStillNear({ lastReply, state }: Client, now: number): boolean {
  if (lastReply === undefined) return false;
  const { buckets, now: repliedAt } = lastReply.decision;
  // The state includes local decisions.
  const day = {
    ...(buckets[1] as BucketState),
    ...(state && { tokens: state.day.tokens, fraction: state.day.fraction }),
  };
  const since = now - lastReply.at - ((state?.asOf ?? repliedAt) - repliedAt);
  return isNear(day) && since < ticksUntil(Math.floor(day.limit / LEFT_PARTS) + 1, day, day.limit, day.window);
}

const MINUTE_MS = 60_000;
/** The maximum number of keys that one process distinguishes in a minute. */
const MAX_KEYS_PER_MINUTE = 1_000;

/** The keys that a ban refused in one minute. Minutes are counted since 1970. */
export interface KeysOfMinute {
  readonly minute: number;
  readonly ids: readonly string[];
}

/** Collects the banned keys of the current minute, so that operators see keys and not only requests. */
export class BannedKeys {
  #minute = -1;
  #ids = new Set<string>();

  note(keyId: string): void {
    const minute = Math.floor(Date.now() / MINUTE_MS);
    if (minute !== this.#minute) this.#ids = new Set();
    this.#minute = minute;
    if (this.#ids.size < MAX_KEYS_PER_MINUTE) this.#ids.add(keyId);
  }

  /** The keys of the last minute in which a ban refused any. */
  latest(): KeysOfMinute {
    return { minute: this.#minute, ids: [...this.#ids] };
  }
}
