import { boundedMap } from '../../shared/bounded-map.ts';
import { KeyedCount } from '../../shared/fair-share.ts';
import { AddressAllowance } from './address-allowance.ts';
import type { Decision, LimitStatus, Verdict } from './limiter.ts';

const MAX_PROVEN_KEYS = 50_000;

/**
 * The keys most recently found valid by a decision, each with its last one. Any other key may be invented, so it shares
 * the capacity of its address.
 */
export class ProvenKeys {
  readonly #decisions = boundedMap<string, Decision>(MAX_PROVEN_KEYS);

  has(name: string): boolean {
    return this.lastDecision(name) !== undefined;
  }

  lastDecision(name: string): Decision | undefined {
    return this.#decisions.get(name);
  }

  note(name: string, verdict: Verdict): void {
    // A request from a wrong network neither proves nor disproves a key.
    if (verdict.outcome === 'undecided' || (verdict.outcome === 'unauthorized' && verdict.reason === 'elsewhere'))
      return;
    if (verdict.outcome === 'unauthorized') this.#decisions.delete(name);
    else this.#decisions.set(name, verdict);
  }
}

/** `exhausted`: the address has used up its allowance. `crowded`: too many of its requests wait already. */
type Turn = 'entered' | 'exhausted' | 'crowded';

/** Requests of one address that may wait for each other. */
const MAX_WAITING = 1_000;

/**
 * Limits decisions on unproven keys by address: each that finds no key is paid from an allowance. No more run at once
 * than the address could pay for if all its keys were invented. The others wait until that is known. This allowance is
 * separate, so that requests without a key never keep a new key from a decision.
 */
export class Newcomers {
  readonly #allowance = new AddressAllowance();
  readonly #asking = new KeyedCount();
  readonly #waiting = new Map<string, (() => void)[]>();

  /** Takes a turn, now or later. If it is `entered`, call `leave` after the decision and after any charge for it. */
  enter(address: string): Turn | Promise<Turn> {
    const left = this.#left(address);
    if (left < 1) return this.#refuse(address);
    if (this.#asking.of(address) >= left) return this.#wait(address);
    this.#asking.add(address);
    return 'entered';
  }

  /** Pays for a decision that found no key. */
  consume(address: string): LimitStatus {
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
