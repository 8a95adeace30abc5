import { boundedMap } from '../../shared/bounded-map.ts';
import { full, type Level, refill } from './bucket.ts';
import { type Clock, MINUTE, systemClock } from './clock.ts';
import type { LimitStatus } from './limiter.ts';

const REQUESTS = 60;
const MAX_ADDRESSES = 10_000;

/**
 * Limits the requests per minute of each address without a valid key or token. The most recent addresses are kept in
 * this process.
 */
export class AddressAllowance {
  readonly #clock: Clock;
  readonly #limit: number;
  readonly #entries = boundedMap<string, { level: Level; asOf: number }>(MAX_ADDRESSES);

  constructor(clock: Clock = systemClock, limit = REQUESTS) {
    this.#clock = clock;
    this.#limit = limit;
  }

  /**
   * Takes a request from the allowance if one is left. @returns the limit status of the address
   * @param cost in requests. If less is left, the rest is a debt: requests are refused until it is paid
   */
  consume(address: string, cost = 1): LimitStatus {
    const status = this.peek(address);
    const [bucket] = status.buckets;
    if (bucket === undefined || bucket.tokens < 1) return { ...status, outcome: 'refused' };
    const level = { tokens: bucket.tokens - cost, fraction: bucket.fraction };
    this.#entries.set(address, { level, asOf: status.now });
    return { ...status, buckets: [{ ...bucket, ...level }] };
  }

  /** The limit status of the address. Nothing is taken. */
  peek(address: string): LimitStatus {
    const now = this.#clock();
    // A peek does not make the entry younger.
    const entry = this.#entries.peek(address);
    // If the clock was set back, nobody is refused for it.
    const fresh = entry === undefined || entry.asOf > now;
    const level = fresh ? full(this.#limit) : refill(entry.level, this.#limit, MINUTE, now - entry.asOf);
    const bucket = { name: 'address' as const, limit: this.#limit, window: MINUTE, ...level };
    return { outcome: 'admitted', now, buckets: [bucket], bannedUntil: 0 };
  }
}
