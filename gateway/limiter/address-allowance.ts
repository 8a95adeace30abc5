import { boundedMap } from '../../shared/bounded-map.ts';
import { full, type Level, refill } from './bucket.ts';
import { type Clock, MINUTE, systemClock } from './clock.ts';
import type { BucketState, LimitStatus } from './limiter.ts';
import { NO_REFUSALS, nextPlace, patienceOf, type Refusals, refusalsAt, withRefusal } from './refusals.ts';

const REQUESTS = 60;
const MAX_ADDRESSES = 10_000;

interface Entry {
  readonly level: Level;
  readonly refusals: Refusals;
  readonly asOf: number;
}

/**
 * Limits the requests per minute of each address without a valid key or token, by the rules of a key with one bucket. An
 * address has no ban: a refusal that would ban a key closes its connection instead. The most recent addresses are kept
 * in this process.
 */
export class AddressAllowance {
  readonly #clock: Clock;
  readonly #limit: number;
  readonly #entries = boundedMap<string, Entry>(MAX_ADDRESSES);

  constructor(clock: Clock = systemClock, limit = REQUESTS) {
    this.#clock = clock;
    this.#limit = limit;
  }

  /**
   * Takes a request from the allowance if one is left. @returns the limit status of the address
   * @param cost in requests. The bucket can go below zero: requests are then refused until it has refilled
   */
  consume(address: string, cost = 1): LimitStatus {
    const { now, bucket, refusals } = this.#standing(address);
    if (bucket.tokens >= 1) {
      const level = { tokens: bucket.tokens - cost, fraction: bucket.fraction };
      this.#entries.set(address, { level, refusals, asOf: now });
      return statusOf('admitted', now, { ...bucket, ...level });
    }
    const retryAt = nextPlace(refusals, now, [bucket]);
    const after = withRefusal(refusals, now, retryAt, this.#patience);
    this.#entries.set(address, { level: bucket, refusals: after.refusals, asOf: now });
    return { ...statusOf('refused', now, bucket), retryAt, closesConnection: after.isTooMany };
  }

  /** The limit status of the address. Takes nothing. */
  peek(address: string): LimitStatus {
    const { now, bucket } = this.#standing(address);
    return statusOf('admitted', now, bucket);
  }

  #standing(address: string): { now: number; bucket: BucketState; refusals: Refusals } {
    const now = this.#clock();
    // Reading an entry must not protect it from eviction.
    const entry = this.#entries.peek(address);
    const common = { name: 'address', limit: this.#limit, window: MINUTE } as const;
    // If the clock was set back, the address starts again with a full bucket, so nobody is refused for it.
    if (entry === undefined || entry.asOf > now)
      return { now, bucket: { ...common, ...full(this.#limit) }, refusals: NO_REFUSALS };
    const level = refill(entry.level, this.#limit, MINUTE, now - entry.asOf);
    return { now, bucket: { ...common, ...level }, refusals: refusalsAt(entry.refusals, now, 0, this.#patience) };
  }

  get #patience() {
    return patienceOf({}, this.#limit);
  }
}

const statusOf = (outcome: LimitStatus['outcome'], now: number, bucket: BucketState): LimitStatus => ({
  outcome,
  now,
  buckets: [bucket],
  bannedUntil: 0,
});
