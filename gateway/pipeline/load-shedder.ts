import { unavailable } from '../../shared/errors.ts';
import { fairPart } from '../../shared/fair-part.ts';
import { KeyedCount } from '../../shared/keyed-count.ts';

const OVERSHOOT = 2;
/** Of the limit, for all whose keys are not proven together. */
const UNPROVEN_SHARE = 0.25;

/** Whose capacity a request takes: its key's, or, where the key may be made up, its address's. */
export interface Caller {
  readonly name: string;
  readonly isProven: boolean;
}

/**
 * Load shedding: a request that would only wait, and make others wait, is refused before anything is spent on it. How many
 * may be in the gateway at once is for the cores to say. A caller holds its fair part of that (fairPart), and is let in below
 * it even when the total exceeds the limit. Unproven callers hold a fixed part together, so that
 * made-up keys never take the capacity of good ones.
 */
export class LoadShedder {
  readonly #limit: () => number;
  readonly #perCaller = new KeyedCount();
  #total = 0;
  #unproven = 0;

  /** @param limit of requests at once, as things stand */
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

/** One request's part of the capacity. Whoever makes it releases it, once. */
export class Slot {
  readonly #shedder: LoadShedder;
  #holder: Caller | undefined;

  constructor(shedder: LoadShedder) {
    this.#shedder = shedder;
  }

  /** @throws {HttpError} 503, where the caller has no room */
  take(caller: Caller): void {
    if (!this.#shedder.hasRoomFor(caller)) throw unavailable(new Shed());
    this.#shedder.take(caller);
    this.#holder = caller;
  }

  /** The key of its caller was proven. */
  moveTo(caller: Caller): void {
    this.release();
    this.#shedder.take(caller);
    this.#holder = caller;
  }

  /**
   * Gives it back for as long as a request waits for its own client, who would else keep capacity from others for as long as
   * it likes. The request has been decided on by then, so it is let in again without a question.
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

  /** Gives it back, where it was taken. */
  release(): void {
    if (this.#holder !== undefined) this.#shedder.giveBack(this.#holder);
    this.#holder = undefined;
  }
}

/** The cause of a 503 that sheds load. */
export class Shed extends Error {
  constructor() {
    super('Too many requests are under way.');
  }
}
