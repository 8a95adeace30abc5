import { fairPart } from '../../shared/fair-part.ts';
import { KeyedCount } from '../../shared/keyed-count.ts';

/** Somebody who waits for a place. */
export interface Waiter {
  readonly client: string;
  start(): void;
}

/**
 * So many places, shared fairly by clients (fairPart). Who waits does so in a queue of its own client; the queues take turns.
 */
export class FairShare {
  readonly #places: number;
  readonly #held = new KeyedCount();
  readonly #queues = new Map<string, Set<Waiter>>();
  #taken = 0;
  #waiting = 0;

  constructor(places: number) {
    this.#places = places;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Calls `start` now, or once there is a place. */
  take(waiter: Waiter): void {
    if (this.#mayHold(waiter.client)) this.#start(waiter);
    else {
      this.#queueOf(waiter.client).add(waiter);
      this.#waiting += 1;
    }
  }

  /** Gives a place back. */
  release(client: string): void {
    this.#held.remove(client);
    this.#taken -= 1;
    this.#serve();
  }

  /** Takes somebody out of the queue. @returns false where it waits no more */
  cancel(waiter: Waiter): boolean {
    const queue = this.#queues.get(waiter.client);
    if (!queue?.delete(waiter)) return false;
    this.#waiting -= 1;
    if (queue.size === 0) this.#queues.delete(waiter.client);
    return true;
  }

  #mayHold(client: string): boolean {
    if (this.#taken >= this.#places) return false;
    return this.#held.of(client) < fairPart(this.#places, this.#taken, this.#held.size);
  }

  /** One release can let several in: a client's share grows as places become free. */
  #serve(): void {
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      this.cancel(next);
      // Its client's queue goes to the end of the turn.
      const rest = this.#queues.get(next.client);
      if (rest !== undefined) {
        this.#queues.delete(next.client);
        this.#queues.set(next.client, rest);
      }
      this.#start(next);
    }
  }

  #next(): Waiter | undefined {
    for (const [client, queue] of this.#queues) if (this.#mayHold(client)) return queue.values().next().value;
    return undefined;
  }

  #start(waiter: Waiter): void {
    this.#held.add(waiter.client);
    this.#taken += 1;
    waiter.start();
  }

  #queueOf(client: string): Set<Waiter> {
    const queue = this.#queues.get(client) ?? new Set();
    this.#queues.set(client, queue);
    return queue;
  }
}
