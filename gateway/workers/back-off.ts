const FIRST_MS = 100;
const LONGEST_MS = 30_000;
/** After serving this long, a worker counts as healthy and the back-off starts again. */
const HEALTHY_MS = 30_000;

/** The wait before a worker is restarted. It doubles with each early end, up to half a minute. */
export class BackOff {
  #nextMs = FIRST_MS;

  /** @param servedMs how long the ended worker served; 0 if it never did */
  next(servedMs: number): number {
    const waitMs = servedMs >= HEALTHY_MS ? FIRST_MS : this.#nextMs;
    this.#nextMs = Math.min(2 * waitMs, LONGEST_MS);
    return waitMs;
  }
}
