import type { Decision } from './limiter.ts';

/** When operators last changed a key, or any of several keys. Verdicts from before a change are not used. */
export class Changes {
  /** When this gateway made the last change, in microseconds that never go back. */
  #changedAt = Number.NEGATIVE_INFINITY;
  /** When another gateway made the last change, by the store's clock. */
  #changedElsewhere = Number.NEGATIVE_INFINITY;
  #heardAt = Number.NEGATIVE_INFINITY;

  /**
   * @param now in microseconds that never go back
   * @param elsewhere the time of a change at another gateway, by the store's clock
   */
  note(now: number, elsewhere?: number): void {
    if (elsewhere === undefined) {
      this.#changedAt = Math.max(now, this.#changedAt);
      return;
    }
    this.#changedElsewhere = Math.max(elsewhere, this.#changedElsewhere);
    this.#heardAt = now;
  }

  get changedAt(): number {
    return this.#changedAt;
  }

  /**
   * Whether an answer to a question of `askedAt` may be older than a change.
   * @param decision the answer. It is not outdated if the store took it after the change at another gateway
   */
  areSince(askedAt: number, decision?: Decision): boolean {
    if (this.#changedAt >= askedAt) return true;
    return this.#heardAt >= askedAt && (decision === undefined || decision.now < this.#changedElsewhere);
  }
}
