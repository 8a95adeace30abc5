import { HeadCount } from '../shared/head-count.ts';

const OVERSHOOT = 2;
/** Of the limit, for all whose keys are not proven together. */
const UNPROVEN_SHARE = 0.25;

/** Whose room a request takes: its key's, or, where the key may be made up, its address's. */
export interface Share {
  readonly client: string;
  readonly isProven: boolean;
}

/**
 * Load shedding: a request that would only wait, and make others wait, is refused before anything is spent on it. How many
 * may be in the gateway at once is for the cores to say. A client holds at most as many as are left for others, which is half
 * where it comes alone (dynamic thresholds, Choudhury and Hahne 1998), or an equal share where that is more. A client below
 * its share is admitted even when the total exceeds the limit. Unproven clients hold a fixed part together, so that made-up
 * keys never take the room of good ones.
 */
export class Admission {
  readonly #limit: () => number;
  readonly #perClient = new HeadCount();
  #total = 0;
  #unproven = 0;

  /** @param limit of requests at once, as things stand */
  constructor(limit: () => number) {
    this.#limit = limit;
  }

  /** Takes a request of a client in, to be let out by `leave`; false where it is one too many. */
  enter(share: Share): boolean {
    const limit = this.#limit();
    const { client, isProven } = share;
    if (!isProven && this.#unproven >= limit * UNPROVEN_SHARE) return false;
    const most = Math.max(limit - this.#total, limit / (this.#perClient.size + 1));
    if (this.#perClient.of(client) >= most || this.#total >= OVERSHOOT * limit) return false;
    this.#take(share);
    return true;
  }

  /**
   * Lets a request out for as long as it waits for its own client, who would else keep room from others for as long as it
   * likes. It has been decided on by then, so it is let in again without a question.
   */
  async outside<T>(share: Share, wait: () => Promise<T>): Promise<T> {
    this.leave(share);
    try {
      return await wait();
    } finally {
      this.#take(share);
    }
  }

  /** Moves a request from one client to another: its key was proven. */
  move(from: Share, to: Share): Share {
    this.leave(from);
    this.#take(to);
    return to;
  }

  leave({ client, isProven }: Share): void {
    this.#perClient.remove(client);
    this.#total -= 1;
    if (!isProven) this.#unproven -= 1;
  }

  #take({ client, isProven }: Share): void {
    this.#perClient.add(client);
    this.#total += 1;
    if (!isProven) this.#unproven += 1;
  }
}
