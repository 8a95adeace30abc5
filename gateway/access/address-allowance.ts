import { full, type Level, refill } from './bucket.ts';
import { type Clock, systemClock } from './clock.ts';
import { type LimitStatus, MINUTE } from './verdict.ts';

const REQUESTS = 60;
const MAX_ADDRESSES = 10_000;

/**
 * What an address may send a minute without a key or a token that opens something, kept in this process for the addresses
 * that came last.
 */
export class AddressAllowance {
  readonly #clock: Clock;
  readonly #limit: number;
  readonly #entries = new Map<string, { level: Level; asOf: number }>();

  constructor(clock: Clock = systemClock, limit = REQUESTS) {
    this.#clock = clock;
    this.#limit = limit;
  }

  /**
   * Takes a request from the allowance, if one is left, and tells where the address then stands.
   * @param cost of it, in requests. Where less is left, the rest is a debt, and the next one is refused until it is paid
   */
  consume(address: string, cost = 1): LimitStatus {
    const status = this.peek(address);
    const [bucket] = status.buckets;
    if (bucket === undefined || bucket.tokens < 1) return { ...status, outcome: 'refused' };
    const level = { tokens: bucket.tokens - cost, parts: bucket.parts };
    this.#keep(address, level, status.now);
    return { ...status, buckets: [{ ...bucket, ...level }] };
  }

  /** Where the address stands, at no cost. */
  peek(address: string): LimitStatus {
    const now = this.#clock();
    const entry = this.#entries.get(address);
    // A clock that was set back is no reason to refuse anyone.
    const fresh = entry === undefined || entry.asOf > now;
    const level = fresh ? full(this.#limit) : refill(entry.level, this.#limit, MINUTE, now - entry.asOf);
    const bucket = { name: 'address' as const, limit: this.#limit, window: MINUTE, ...level };
    return { outcome: 'admitted', now, buckets: [bucket], bannedUntil: 0 };
  }

  /** A Map lists its oldest entry first; taking an entry out and in again makes it the newest. */
  #keep(address: string, level: Level, asOf: number): void {
    this.#entries.delete(address);
    if (this.#entries.size >= MAX_ADDRESSES) this.#entries.delete(this.#entries.keys().next().value as string);
    this.#entries.set(address, { level, asOf });
  }
}
