import { PLAN_NAMES, type PlanName } from '../limiter/plans.ts';
import type { Decision } from '../limiter/verdict.ts';

/** A key is counted for one to two windows after its last request. */
const WINDOW_MS = 300_000;
/** Per window. More keys than that are not counted. */
const MAX_KEYS = 10_000;

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
      if (this.#now.size < MAX_KEYS) this.#now.set(keyId, { plan, isRefused });
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
