import { fairPart } from '../../shared/fair-share.ts';

/** The share of the limit for all unverified callers together. */
const UNVERIFIED_SHARE = 0.25;

/** The record whose capacity a request takes: that of its key or, while the key is unverified, that of its address. */
export interface Caller {
  inFlight: number;
}

/**
 * Load shedding refuses a request that would only wait and make others wait, before it costs anything, or when its body
 * arrives. The capacity of the cores limits the requests in the gateway, and each caller has a fair part of it
 * (fairPart). A caller below its part is admitted even when the total exceeds the limit, unless that part is less than
 * one request. Unverified callers share a fixed part, so that made-up keys never take the capacity of valid ones.
 */
export class LoadShedder {
  readonly #limit: () => number;
  readonly #addresses = new Map<string, Address>();
  #callers = 0;
  #total = 0;
  #unverified = 0;

  /** @param limit the current maximum of concurrent requests */
  constructor(limit: () => number) {
    this.#limit = limit;
  }

  /** A slot for one request. It takes no capacity yet. */
  slot(): Slot {
    return new Slot(this);
  }

  hasRoomFor(caller: Caller): boolean {
    const limit = this.#limit();
    if (caller instanceof Address && this.#unverified >= limit * UNVERIFIED_SHARE) return false;
    // The fair part is at least what is free.
    const isFree = caller.inFlight < limit - this.#total;
    return isFree || caller.inFlight + 1 <= fairPart(limit, this.#total, this.#callers);
  }

  /** The caller of unverified requests from an address. */
  address(name: string): Caller {
    return this.#addresses.get(name) ?? new Address(name);
  }

  take(caller: Caller): void {
    if (caller.inFlight++ === 0) this.#callers += 1;
    this.#total += 1;
    if (!(caller instanceof Address)) return;
    this.#addresses.set(caller.name, caller);
    this.#unverified += 1;
  }

  giveBack(caller: Caller): void {
    if (--caller.inFlight === 0) this.#callers -= 1;
    this.#total -= 1;
    if (!(caller instanceof Address)) return;
    if (caller.inFlight === 0) this.#addresses.delete(caller.name);
    this.#unverified -= 1;
  }
}

class Address implements Caller {
  readonly name: string;
  inFlight = 0;

  constructor(name: string) {
    this.name = name;
  }
}

/** One request's part of the capacity. Its creator must release it once. */
export class Slot {
  readonly #shedder: LoadShedder;
  #holder: Caller | undefined;
  #paused: Caller | undefined;

  constructor(shedder: LoadShedder) {
    this.#shedder = shedder;
  }

  /** @returns false if the caller has no room */
  take(caller: Caller): boolean {
    if (!this.#shedder.hasRoomFor(caller)) return false;
    this.#hold(caller);
    return true;
  }

  /** Takes a place for an unverified request from an address. */
  takeUnverified(address: string): boolean {
    return this.take(this.#shedder.address(address));
  }

  /** Moves the slot to the record of its key once the key is verified. */
  moveTo(caller: Caller): void {
    this.release();
    this.#hold(caller);
  }

  /** Releases the capacity while the request waits for its client, so that slow clients do not hold it. */
  pause(): void {
    this.#paused = this.#holder;
    this.release();
  }

  /** Takes the capacity back. @returns false if it is used up: many bodies can arrive at once */
  resume(): boolean {
    return this.#paused === undefined || this.take(this.#paused);
  }

  /** Returns the capacity, if it was taken. */
  release(): void {
    if (this.#holder !== undefined) this.#shedder.giveBack(this.#holder);
    this.#holder = undefined;
  }

  #hold(caller: Caller): void {
    this.#shedder.take(caller);
    this.#holder = caller;
  }
}
