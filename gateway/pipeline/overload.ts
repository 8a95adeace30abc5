import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { FairQueue, fairPart, mayHoldMore } from '../../shared/fair-share.ts';
import { systemClock } from '../limiter/bucket.ts';
import { AddressAllowance } from '../limiter/newcomers.ts';

/**
 * Handles overload of the gateway and the cores. Excess requests are refused at once, and frequent refusals are
 * delayed, so that no client uses up the capacity that others need.
 */

/** The share of the limit for all unverified callers together. */
const UNVERIFIED_SHARE = 0.25;

/** Whoever uses the capacity: a key or, while the key is unverified, its address. */
export interface Caller {
  inFlight: number;
}

/**
 * Refuses requests that would only wait and make others wait, either before they cost anything or when their body has
 * arrived. The capacity of the cores limits the requests in the gateway, and each caller has a fair share of it
 * (fairPart). A caller below its share is admitted even when the total exceeds the limit, unless that share is less
 * than one request. All unverified callers together have a fixed share, so that made-up keys never take the capacity of
 * valid ones.
 */
export class LoadShedder {
  readonly #limit: () => number;
  readonly #perCaller: () => number;
  readonly #addresses = new Map<string, Address>();
  #callers = 0;
  #total = 0;
  #unverified = 0;

  /**
   * @param limit returns the current maximum number of concurrent requests
   * @param perCaller returns that of one caller, if its fair share is larger
   */
  constructor(limit: () => number, perCaller = () => Number.POSITIVE_INFINITY) {
    this.#limit = limit;
    this.#perCaller = perCaller;
  }

  /** Creates a slot for one request. It holds no capacity yet. */
  slot(): Slot {
    return new Slot(this);
  }

  hasRoomFor(caller: Caller): boolean {
    const limit = this.#limit();
    if (caller instanceof Address && this.#unverified >= limit * UNVERIFIED_SHARE) return false;
    // The fair share is never less than the free capacity, which is cheaper to compute.
    const wanted = caller.inFlight + 1;
    if (wanted > this.#perCaller()) return false;
    return wanted <= limit - this.#total || wanted <= fairPart(limit, this.#total, this.#callers);
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

/** One request's share of the capacity. Its creator must release it once. */
export class Slot {
  readonly #shedder: LoadShedder;
  #holder: Caller | undefined;
  #paused: Caller | undefined;

  constructor(shedder: LoadShedder) {
    this.#shedder = shedder;
  }

  /** @returns false if the caller's share is used up */
  take(caller: Caller): boolean {
    if (!this.#shedder.hasRoomFor(caller)) return false;
    this.#hold(caller);
    return true;
  }

  /** Takes capacity for an unverified request that came from an address. */
  takeUnverified(address: string): boolean {
    return this.take(this.#shedder.address(address));
  }

  /** Moves the slot from the address to the key, once the key is verified. */
  moveTo(caller: Caller): void {
    this.release();
    this.#hold(caller);
  }

  /** Releases the capacity while the request waits for its client, so that slow clients do not hold it. */
  pause(): void {
    this.#paused = this.#holder;
    this.release();
  }

  /** Takes the capacity back. @returns false if there is none left: many bodies can arrive at once */
  resume(): boolean {
    return this.#paused === undefined || this.take(this.#paused);
  }

  /** Releases the capacity, if it holds any. */
  release(): void {
    if (this.#holder !== undefined) this.#shedder.giveBack(this.#holder);
    this.#holder = undefined;
  }

  #hold(caller: Caller): void {
    this.#shedder.take(caller);
    this.#holder = caller;
  }
}

/** Refusals per client and minute that are sent without delay. */
const PROMPT_A_MINUTE = 60;
/** While other clients are served, one further refusal is sent per millisecond, in bursts of at most BURST. */
const MS_PER_REFUSAL = 1;
const BURST = 4;
const TICK_MS = 4;
/** This many served requests permit one more refusal. */
const SERVED_FOR_ONE = 4;
/**
 * Delayed refusals per turn of the event loop while no other client is served. They delay a new request by about two
 * milliseconds.
 */
const WHEN_IDLE = 32;
/** Refusals are slowed for this long after another client's last served request. */
const MAKES_ROOM_MS = 1_000;
const MAX_WAITING = 10_000;
/** Delayed refusals on a connection before it is closed. */
const MOST_ON_CONNECTION = 100;

/** Reading and refusing this many bytes of a body costs as much as a refusal without a body. */
const BYTES_PER_REFUSAL = 2_048;
const MAX_COST = 500;

/** The cost of refusing a body that exceeds this limit. The unit is a refusal without a body. */
export const costOfBody = (limitBytes: number): number => Math.min(1 + limitBytes / BYTES_PER_REFUSAL, MAX_COST);

interface Waiting {
  readonly release: () => void;
  readonly cost: number;
}

/**
 * Delays refusals when there are too many. A refusal costs about as much as a served request, so clients that keep
 * sending after refusals are slowed down. A client's first refusals in a minute are sent without delay. The rest share
 * a token bucket, which refills over time and with each served request. While it is empty, they wait in a queue that
 * takes clients in turn; a client sends nothing while it waits. While no other client is served, each turn of the
 * event loop sends up to WHEN_IDLE of them.
 */
export class RefusalPacing {
  readonly #prompt = new AddressAllowance(systemClock, PROMPT_A_MINUTE);
  readonly #perConnection = new WeakMap<Socket, number>();
  readonly #waiting = new FairQueue<Waiting>();
  /**
   * How many refusals may be sent now. It grows over time up to BURST, and with served requests up to WHEN_IDLE. It is
   * negative after a refusal that cost more than was left.
   */
  #left = BURST;
  #refilledAt = performance.now();
  /** The client that was served last, when that was, and when a different client was last served. */
  #served = '';
  #servedAt = Number.NEGATIVE_INFINITY;
  #otherServedAt = Number.NEGATIVE_INFINITY;

  /**
   * Notes an admitted request. Such a request slows other clients' refusals, and several permit one more refusal.
   * @param now by performance.now()
   */
  noteAdmitted(client: string, now = performance.now()): void {
    if (client !== this.#served) this.#otherServedAt = this.#servedAt;
    this.#served = client;
    this.#servedAt = now;
    this.#left = Math.min(this.#left + 1 / SERVED_FOR_ONE, WHEN_IDLE);
  }

  #othersAreServed(client: string | undefined): boolean {
    const othersServedAt = client === this.#served ? this.#otherServedAt : this.#servedAt;
    return performance.now() - othersServedAt < MAKES_ROOM_MS;
  }

  /**
   * Returns undefined if a refusal may be sent at once, otherwise a promise that resolves when it may. Cuts the
   * connection if too many refusals are waiting.
   * @param client the name of a verified key, or an address
   * @param cost the unit is a refusal without a body
   */
  delay(client: string, response: ServerResponse, cost = 1): Promise<void> | undefined {
    if (this.#prompt.consume(client).outcome === 'admitted') return undefined;
    const { socket } = response.req;
    const refused = (this.#perConnection.get(socket) ?? 0) + 1;
    this.#perConnection.set(socket, refused);
    if (refused >= MOST_ON_CONNECTION) response.shouldKeepAlive = false;
    const { size, clients } = this.#waiting;
    if (size === 0 && this.#refill() >= 1) {
      this.#left -= cost;
      return undefined;
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    if (mayHoldMore(this.#waiting.of(client), MAX_WAITING, size, clients)) {
      this.#waiting.add(client, { release: resolve, cost });
      if (this.#waiting.size === 1) this.#schedule();
    } else response.once('close', resolve).destroy();
    return promise;
  }

  #schedule(): void {
    const onlyServedWaits = this.#waiting.of(this.#served) === this.#waiting.size;
    if (this.#othersAreServed(onlyServedWaits ? this.#served : undefined)) setTimeout(this.#tick, TICK_MS);
    else setImmediate(this.#whenIdle);
  }

  #refill(): number {
    const now = performance.now();
    const refilled = this.#left + (now - this.#refilledAt) / MS_PER_REFUSAL;
    this.#left = Math.max(this.#left, Math.min(refilled, BURST));
    this.#refilledAt = now;
    return this.#left;
  }

  readonly #tick = (): void => {
    this.#refill();
    this.#spend();
  };

  readonly #whenIdle = (): void => {
    this.#left = Math.min(this.#left, 0) + WHEN_IDLE;
    this.#spend();
  };

  #spend(): void {
    while (this.#left >= 1 && this.#waiting.size > 0) {
      const { release, cost } = this.#waiting.take() as Waiting;
      release();
      this.#left -= cost;
    }
    if (this.#waiting.size > 0) this.#schedule();
  }
}
