import { FairQueue, mayHoldMore } from '../../shared/fair-queue.ts';
import { KeyedCount } from '../../shared/keyed-count.ts';

/** A request that waits for a place. */
export interface Waiter {
  readonly client: string;
  start(): void;
}

/** A fixed number of places, shared fairly by clients (fairPart). Those who wait for one take turns. */
export class FairShare {
  readonly #places: number;
  readonly #held = new KeyedCount();
  readonly #queue = new FairQueue<Waiter>();
  #taken = 0;

  constructor(places: number) {
    this.#places = places;
  }

  get waiting(): number {
    return this.#queue.size;
  }

  /** Calls `start` now, or as soon as there is a place. */
  take(waiter: Waiter): void {
    if (this.#mayHold(waiter.client)) this.#start(waiter);
    else this.#queue.add(waiter.client, waiter);
  }

  /** Frees a place. One place can admit several: a client's share grows as places become free. */
  release(client: string): void {
    this.#held.remove(client);
    this.#taken -= 1;
    const next = () => this.#queue.take((waiting) => this.#mayHold(waiting));
    for (let waiter = next(); waiter !== undefined; waiter = next()) this.#start(waiter);
  }

  /** Removes a waiter from the queue. @returns false if it no longer waits */
  cancel(waiter: Waiter): boolean {
    return this.#queue.remove(waiter.client, waiter);
  }

  #mayHold(client: string): boolean {
    return mayHoldMore(this.#held.of(client), this.#places, this.#taken, this.#held.size);
  }

  #start(waiter: Waiter): void {
    this.#held.add(waiter.client);
    this.#taken += 1;
    waiter.start();
  }
}
