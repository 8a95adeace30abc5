import { fairPart, KeyedCount } from '../../shared/fair-share.ts';

const OVERSHOOT = 2;
/** Of the limit, for all unproven callers together. */
const UNPROVEN_SHARE = 0.25;

/** Whose capacity a request takes: its key's, or its address's while the key is unproven. */
export interface Caller {
  readonly name: string;
  readonly isProven: boolean;
}

/**
 * Load shedding: a request that would only wait, and make others wait, is refused before it costs anything. The
 * capacity of the cores limits the requests in the gateway. Each caller has a fair part of it (fairPart). A caller
 * below its part is admitted even when the total exceeds the limit. Unproven callers share a fixed part, so that
 * made-up keys never take the capacity of valid ones.
 */
export class LoadShedder {
  readonly #limit: () => number;
  readonly #perCaller = new KeyedCount();
  #total = 0;
  #unproven = 0;

  /** @param limit the current maximum of concurrent requests */
  constructor(limit: () => number) {
    this.#limit = limit;
  }

  /** A slot for one request. It takes no capacity yet. */
  slot(): Slot {
    return new Slot(this);
  }

  hasRoomFor({ name, isProven }: Caller): boolean {
    const limit = this.#limit();
    if (!isProven && this.#unproven >= limit * UNPROVEN_SHARE) return false;
    if (this.#total >= OVERSHOOT * limit) return false;
    return this.#perCaller.of(name) < fairPart(limit, this.#total, this.#perCaller.size);
  }

  take({ name, isProven }: Caller): void {
    this.#perCaller.add(name);
    this.#total += 1;
    if (!isProven) this.#unproven += 1;
  }

  giveBack({ name, isProven }: Caller): void {
    this.#perCaller.remove(name);
    this.#total -= 1;
    if (!isProven) this.#unproven -= 1;
  }
}

/** One request's part of the capacity. Its creator must release it once. */
export class Slot {
  readonly #shedder: LoadShedder;
  #holder: Caller | undefined;

  constructor(shedder: LoadShedder) {
    this.#shedder = shedder;
  }

  /** @returns false if the caller has no room */
  take(caller: Caller): boolean {
    if (!this.#shedder.hasRoomFor(caller)) return false;
    this.#shedder.take(caller);
    this.#holder = caller;
    return true;
  }

  /** Moves the slot to its key once the key is proven. */
  moveTo(caller: Caller): void {
    this.release();
    this.#shedder.take(caller);
    this.#holder = caller;
  }

  /**
   * Releases the capacity while a request waits for its own client, so that slow clients do not hold it. The request is
   * already decided on, so it takes the capacity back without a check.
   */
  async during<T>(wait: () => Promise<T>): Promise<T> {
    const holder = this.#holder;
    this.release();
    try {
      return await wait();
    } finally {
      if (holder !== undefined) this.#shedder.take(holder);
      this.#holder = holder;
    }
  }

  /** Returns the capacity, if it was taken. */
  release(): void {
    if (this.#holder !== undefined) this.#shedder.giveBack(this.#holder);
    this.#holder = undefined;
  }
}

/** The cause of a 503 from load shedding. */
export class Shed extends Error {
  constructor() {
    super('Too many requests are under way.');
  }
}
