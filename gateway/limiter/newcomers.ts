import { boundedMap } from '../../shared/bounded-map.ts';
import { KeyedCount } from '../../shared/fair-share.ts';
import { AddressAllowance } from './address-allowance.ts';
import type { Clients } from './clients.ts';
import { monotonicClock, SECOND } from './clock.ts';
import type { Credential } from './credential.ts';
import type { LimitStatus, Unauthorized } from './limiter.ts';

/** A refused credential is asked for again after this time: its key may have been edited by hand. */
const VERDICT_HOLDS = 5 * SECOND;
const MAX_REFUSED = 20_000;

/** `exhausted`: the address has used up its allowance. `crowded`: too many of its requests wait already. */
type Turn = 'entered' | 'exhausted' | 'crowded';

/** Requests of one address that may wait for each other. */
const MAX_WAITING = 1_000;

/**
 * Limits decisions on unverified keys by address: each that finds no key is paid from an allowance, the first time. What
 * was refused lately is refused again without a decision, so that one client with a dead key costs its neighbours
 * nothing. No more decisions run at once than the address could pay for if all its keys were invented. The others wait
 * until that is known. This allowance is separate, so that requests without a key never keep a new key from a decision.
 */
export class Newcomers {
  readonly #clients: Pick<Clients, 'hasChangedSince'>;
  readonly #monotonic: () => number;
  /** By address and credential. */
  readonly #refused = boundedMap<string, { readonly verdict: Unauthorized; readonly askedAt: number }>(MAX_REFUSED);
  readonly #allowance = new AddressAllowance();
  readonly #asking = new KeyedCount();
  readonly #waiting = new Map<string, (() => void)[]>();

  /** @param monotonic microseconds that never go back */
  constructor(clients: Pick<Clients, 'hasChangedSince'>, monotonic = monotonicClock) {
    this.#clients = clients;
    this.#monotonic = monotonic;
  }

  /** The verdict on a credential that was refused lately. */
  refusal(address: string, credential: Credential): Unauthorized | undefined {
    if (this.#refused.size === 0) return undefined;
    const refused = this.#refused.get(nameOf(address, credential));
    if (refused === undefined || this.#monotonic() - refused.askedAt > VERDICT_HOLDS) return undefined;
    return this.#clients.hasChangedSince(credential.id, refused.askedAt) ? undefined : refused.verdict;
  }

  /** Takes a turn, now or later. If it is `entered`, call `leave` after the decision and after any charge for it. */
  enter(address: string): Turn | Promise<Turn> {
    const left = this.#left(address);
    if (left < 1) return this.#refuse(address);
    if (this.#asking.of(address) >= left) return this.#wait(address);
    this.#asking.add(address);
    return 'entered';
  }

  /** Notes a decision that found no key. The address pays for it once for each credential. */
  refuse(address: string, credential: Credential, verdict: Unauthorized, askedAt: number): void {
    const name = nameOf(address, credential);
    if (!this.#refused.has(name)) this.#allowance.consume(address);
    this.#refused.set(name, { verdict, askedAt });
  }

  /** The limit status of an address whose turn was refused. */
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

  /** One at a time: each wakes the next one when it leaves or is refused. */
  #wake(address: string): void {
    const waiting = this.#waiting.get(address);
    waiting?.shift()?.();
    if (waiting?.length === 0) this.#waiting.delete(address);
  }

  #left = (address: string): number => this.#allowance.peek(address).buckets[0]?.tokens ?? 0;
}

/** A secret can be refused because of its address. */
const nameOf = (address: string, { cacheKey, use }: Credential): string => `${address} ${cacheKey} ${use.address}`;
