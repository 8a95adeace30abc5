const FIRST_MS = 100;
const LONGEST_MS = 30_000;
/** Who has served for so long was well: what ended it then is counted as the first time. */
const HEALTHY_MS = 30_000;

/** How long to wait before a worker is started again: twice as long each time it ends early, up to half a minute. */
export class BackOff {
  #nextMs = FIRST_MS;

  /** @param servedMs how long the worker that has ended had served; 0 when it never did */
  next(servedMs: number): number {
    const waitMs = servedMs >= HEALTHY_MS ? FIRST_MS : this.#nextMs;
    this.#nextMs = Math.min(2 * waitMs, LONGEST_MS);
    return waitMs;
  }
}
