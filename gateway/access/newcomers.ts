import { KeyedCount } from '../../shared/keyed-count.ts';
import { AddressAllowance } from './address-allowance.ts';
import type { LimitStatus } from './verdict.ts';

/** Requests of an address that may wait for each other. */
const MAX_WAITING = 1_000;

/**
 * Decisions on keys that are not proven, by address: each that finds no key is paid from an allowance. No more are under way
 * than the address could pay for if all its keys were made up; the others wait until it is known whether they were. The
 * allowance is one of its own, so that requests without a key keep nobody's new key from a decision.
 */
export class Newcomers {
  readonly #allowance = new AddressAllowance();
  readonly #asking = new KeyedCount();
  readonly #waiting = new Map<string, (() => void)[]>();

  /**
   * Takes a turn, to be ended with `leave` once the decision has been charged, if it is to be.
   * @returns false, now or later, where nothing is left of the allowance
   */
  enter(address: string): boolean | Promise<boolean> {
    const left = this.#left(address);
    if (left < 1) return this.#refuse(address);
    if (this.#asking.of(address) >= left) return this.#wait(address);
    this.#asking.add(address);
    return true;
  }

  /** Pays for a decision that found no key. */
  consume(address: string): LimitStatus {
    return this.#allowance.consume(address);
  }

  leave(address: string): void {
    this.#asking.remove(address);
    this.#wake(address);
  }

  #refuse(address: string): false {
    this.#wake(address);
    return false;
  }

  #wait(address: string): boolean | Promise<boolean> {
    const waiting = this.#waiting.get(address) ?? [];
    if (waiting.length >= MAX_WAITING) return false;
    this.#waiting.set(address, waiting);
    const { promise, resolve } = Promise.withResolvers<void>();
    waiting.push(resolve);
    return promise.then(() => this.enter(address));
  }

  /** One at a time: each wakes the next one when it leaves, or is refused. */
  #wake(address: string): void {
    const waiting = this.#waiting.get(address);
    waiting?.shift()?.();
    if (waiting?.length === 0) this.#waiting.delete(address);
  }

  #left = (address: string): number => this.#allowance.peek(address).buckets[0]?.tokens ?? 0;
}
