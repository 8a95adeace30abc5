/**
 * Load shedding: a request that would only wait, and make others wait, is turned away before anything is spent on it. How
 * many may be in the gateway at once is for the cores to say. Nobody may take all of it: a client holds at most as many as
 * are left for others, which leaves half where one comes alone, a third where two do (dynamic thresholds, Choudhury and
 * Hahne 1998). Who holds none at all finds room even where others have filled it.
 */
export class Admission {
  readonly #limit: () => number;
  readonly #perClient = new Map<string, number>();
  #total = 0;

  /** @param limit of requests at once, as things stand */
  constructor(limit: () => number) {
    this.#limit = limit;
  }

  /** Takes a request of a client in, to be let out by `leave`; false where it is one too many. */
  enter(client: string): boolean {
    const own = this.#perClient.get(client) ?? 0;
    const limit = this.#limit();
    if (own === 0 ? this.#total >= 2 * limit : own >= limit - this.#total) return false;
    this.#perClient.set(client, own + 1);
    this.#total += 1;
    return true;
  }

  leave(client: string): void {
    const left = (this.#perClient.get(client) ?? 1) - 1;
    if (left === 0) this.#perClient.delete(client);
    else this.#perClient.set(client, left);
    this.#total -= 1;
  }
}
