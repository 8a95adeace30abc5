import { HeadCount } from '../shared/head-count.ts';

const OVERSHOOT = 2;

/**
 * Load shedding: a request that would only wait, and make others wait, is turned away before anything is spent on it. How
 * many may be in the gateway at once is for the cores to say. Nobody may take all of it: a client holds at most as many as
 * are left for others, which leaves half where one comes alone (dynamic thresholds, Choudhury and Hahne 1998), or an equal
 * share where that is more. Who holds less than that finds room even where the limit has fallen below what is there.
 */
export class Admission {
  readonly #limit: () => number;
  readonly #perClient = new HeadCount();
  #total = 0;

  /** @param limit of requests at once, as things stand */
  constructor(limit: () => number) {
    this.#limit = limit;
  }

  /** Takes a request of a client in, to be let out by `leave`; false where it is one too many. */
  enter(client: string): boolean {
    const limit = this.#limit();
    const share = Math.max(limit - this.#total, limit / (this.#perClient.size + 1));
    if (this.#perClient.of(client) >= share || this.#total >= OVERSHOOT * limit) return false;
    this.#take(client);
    return true;
  }

  /**
   * Lets a request out for as long as it waits for its own client, who would else keep room from others for as long as it
   * likes. It has been decided on by then, so it is let in again without a question.
   */
  async outside<T>(client: string, wait: () => Promise<T>): Promise<T> {
    this.leave(client);
    try {
      return await wait();
    } finally {
      this.#take(client);
    }
  }

  #take(client: string): void {
    this.#perClient.add(client);
    this.#total += 1;
  }

  leave(client: string): void {
    this.#perClient.remove(client);
    this.#total -= 1;
  }
}
