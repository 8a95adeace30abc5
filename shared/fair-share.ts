/** Current counts by name. A name with a count of zero uses no memory. */
export class KeyedCount {
  readonly #counts = new Map<string, number>();

  /** The number of names with a count above zero. */
  get size(): number {
    return this.#counts.size;
  }

  of(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  add(name: string): void {
    this.#counts.set(name, this.of(name) + 1);
  }

  remove(name: string): void {
    const left = this.of(name) - 1;
    if (left > 0) this.#counts.set(name, left);
    else this.#counts.delete(name);
  }
}

/**
 * The largest part of a shared total that one holder may have: as much as is still free, or an equal part if that is
 * more (dynamic thresholds, Choudhury and Hahne 1998). A single holder thus gets half.
 * @param holders the number of holders with some part of the total
 */
export const fairPart = (total: number, taken: number, holders: number): number =>
  Math.max(total - taken, total / (holders + 1));

/** Whether a holder of `own` may have one more: it has less than its fair part, and the total is not used up. */
export const mayHoldMore = (own: number, total: number, taken: number, holders: number): boolean =>
  taken < total && own < fairPart(total, taken, holders);

/** A queue for each client. The queues take turns (fair queueing, Nagle 1985, RFC 970). */
export class FairQueue<T> {
  readonly #queues = new Map<string, Set<T>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** How many clients have something in the queue. */
  get clients(): number {
    return this.#queues.size;
  }

  /** How many entries a client has in the queue. */
  of(client: string): number {
    return this.#queues.get(client)?.size ?? 0;
  }

  add(client: string, one: T): void {
    const queue = this.#queues.get(client) ?? new Set();
    this.#queues.set(client, queue.add(one));
    this.#size += 1;
  }

  /** @returns false if the entry is no longer in the queue */
  remove(client: string, one: T): boolean {
    const queue = this.#queues.get(client);
    if (!queue?.delete(one)) return false;
    this.#size -= 1;
    if (queue.size === 0) this.#queues.delete(client);
    return true;
  }

  /**
   * Removes the oldest entry of the client whose turn it is. That client moves to the end of the line.
   * @param mayHaveTurn returns false for clients to skip
   */
  take(mayHaveTurn: (client: string) => boolean = () => true): T | undefined {
    for (const [client, queue] of this.#queues) {
      if (!mayHaveTurn(client)) continue;
      const one = queue.values().next().value as T;
      this.remove(client, one);
      if (queue.size > 0) {
        this.#queues.delete(client);
        this.#queues.set(client, queue);
      }
      return one;
    }
    return undefined;
  }
}

/** A request that waits for a place. */
export interface Waiter {
  readonly client: string;
  start(): void;
}

/**
 * A fixed number of places, shared fairly: a client may hold as many places as are free, so that some are always left
 * for other clients (dynamic thresholds). Waiting clients take turns.
 */
export class FairShare {
  readonly places: number;
  readonly #held = new KeyedCount();
  readonly #queue = new FairQueue<Waiter>();
  #taken = 0;

  constructor(places: number) {
    this.places = places;
  }

  get waiting(): number {
    return this.#queue.size;
  }

  /** How many clients wait. */
  get waitingClients(): number {
    return this.#queue.clients;
  }

  /** Whether `take` would call `start` at once. */
  hasRoomFor(client: string): boolean {
    return this.#held.of(client) < this.places - this.#taken;
  }

  /** Takes a place if the client may have one now. */
  takeNow(client: string): boolean {
    const hasRoom = this.hasRoomFor(client);
    if (hasRoom) this.#hold(client);
    return hasRoom;
  }

  /** Calls `start` now, or as soon as a place is free. */
  take(waiter: Waiter): void {
    if (this.takeNow(waiter.client)) waiter.start();
    else this.#queue.add(waiter.client, waiter);
  }

  /** Frees a place. This can admit several waiters, because a client's share grows as places become free. */
  release(client: string): void {
    this.#held.remove(client);
    this.#taken -= 1;
    const next = () => this.#queue.take((waiting) => this.hasRoomFor(waiting));
    for (let waiter = next(); waiter !== undefined; waiter = next()) {
      this.#hold(waiter.client);
      waiter.start();
    }
  }

  /** Removes a waiter from the queue. @returns false if it is no longer in the queue */
  cancel(waiter: Waiter): boolean {
    return this.#queue.remove(waiter.client, waiter);
  }

  #hold(client: string): void {
    this.#held.add(client);
    this.#taken += 1;
  }
}
