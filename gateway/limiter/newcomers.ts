import { boundedMap } from '../../shared/bounded-map.ts';
import { KeyedCount } from '../../shared/fair-share.ts';
import { type Clock, full, type Level, MINUTE, monotonicClock, refill, SECOND, systemClock } from './bucket.ts';
import type { Clients } from './clients.ts';
import type { Credential } from './credential.ts';
import type { BucketState, LimitStatus, Unauthorized } from './limiter.ts';
import { NO_REFUSALS, nextPlace, patienceOf, type Refusals, refusalsAt, withRefusal } from './refusals.ts';

/** A refused credential is checked again after this time, because its key may have been edited by hand. */
const VERDICT_HOLDS = 5 * SECOND;
const MAX_REFUSED = 20_000;

/** `exhausted`: the address has used up its allowance. `crowded`: too many of its requests are waiting. */
type Turn = 'entered' | 'exhausted' | 'crowded';

/** The maximum number of requests from one address that may wait for a turn. */
const MAX_WAITING = 1_000;

/**
 * Limits decisions on unverified keys by address. An address pays from an allowance for each new credential that
 * matches no key. A credential that was refused recently is refused again without a decision, so a client with an
 * invalid key costs its neighbours nothing. No more decisions run concurrently than the address could pay for if
 * all its keys were invalid; the others wait. Requests without a key have their own allowance, so they never delay the
 * decision on a new key.
 */
export class Newcomers {
  readonly #clients: Pick<Clients, 'hasChangedSince'>;
  readonly #monotonic: () => number;
  readonly #refused = boundedMap<string, { readonly verdict: Unauthorized; readonly askedAt: number }>(MAX_REFUSED);
  readonly #allowance = new AddressAllowance();
  readonly #asking = new KeyedCount();
  readonly #waiting = new Map<string, (() => void)[]>();

  /** @param monotonic a clock in microseconds that never goes back */
  constructor(clients: Pick<Clients, 'hasChangedSince'>, monotonic = monotonicClock) {
    this.#clients = clients;
    this.#monotonic = monotonic;
  }

  refusal(address: string, credential: Credential): Unauthorized | undefined {
    if (this.#refused.size === 0) return undefined;
    const refused = this.#refused.get(nameOf(address, credential));
    if (refused === undefined || this.#monotonic() - refused.askedAt > VERDICT_HOLDS) return undefined;
    return this.#clients.hasChangedSince(credential.id, refused.askedAt) ? undefined : refused.verdict;
  }

  /**
   * Requests permission for one decision, which may have to wait. If the result is `entered`, call `leave` once the
   * decision has been made and charged to the address.
   */
  enter(address: string): Turn | Promise<Turn> {
    const left = this.#left(address);
    if (left < 1) return this.#refuse(address);
    if (this.#asking.of(address) >= left) return this.#wait(address);
    this.#asking.add(address);
    return 'entered';
  }

  /** Notes a decision that found no valid key. The address pays for each credential once. */
  refuse(address: string, credential: Credential, verdict: Unauthorized, askedAt: number): void {
    const name = nameOf(address, credential);
    if (!this.#refused.has(name)) this.#allowance.consume(address);
    this.#refused.set(name, { verdict, askedAt });
  }

  status(address: string): LimitStatus {
    return this.#allowance.consume(address);
  }

  leave(address: string): void {
    this.#asking.remove(address);
    this.#wake(address);
  }

  #refuse(address: string): Turn {
    this.#wake(address);
    return 'exhausted';
  }

  #wait(address: string): Turn | Promise<Turn> {
    const waiting = this.#waiting.get(address) ?? [];
    if (waiting.length >= MAX_WAITING) return 'crowded';
    this.#waiting.set(address, waiting);
    const { promise, resolve } = Promise.withResolvers<void>();
    waiting.push(resolve);
    return promise.then(() => this.enter(address));
  }

  /** Wakes one request. That request wakes the next one when it calls `leave` or is refused. */
  #wake(address: string): void {
    const waiting = this.#waiting.get(address);
    waiting?.shift()?.();
    if (waiting?.length === 0) this.#waiting.delete(address);
  }

  #left = (address: string): number => this.#allowance.peek(address).buckets[0]?.tokens ?? 0;
}

/** The name includes the client's address, because a secret may be valid from some addresses only. */
const nameOf = (address: string, { cacheKey, use }: Credential): string => `${address} ${cacheKey} ${use.address}`;

const REQUESTS = 60;
const MAX_ADDRESSES = 10_000;

interface Entry {
  readonly level: Level;
  readonly refusals: Refusals;
  readonly asOf: number;
}

/**
 * Limits the requests per minute of each address without a valid key or token, by the rules of a key with one bucket.
 * Addresses are not banned: where a key would be banned, the connection is closed instead. The most recent addresses
 * are kept in this process.
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
   * Takes a request from the allowance, if one is left. @returns the limit status of the address
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
    if (entry === undefined) return { now, bucket: { ...common, ...full(this.#limit) }, refusals: NO_REFUSALS };
    // If the clock was set back, all stored times move back with it.
    const shift = Math.max(entry.asOf - now, 0);
    const level = refill(entry.level, this.#limit, MINUTE, now + shift - entry.asOf);
    return { now, bucket: { ...common, ...level }, refusals: refusalsAt(entry.refusals, now, shift, this.#patience) };
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
