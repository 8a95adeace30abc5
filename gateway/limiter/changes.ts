import type { Decision } from './limiter.ts';

/** When operators last changed a key, or any of several. What the store said before is not used. */
export class Changes {
  /** At this gateway, in microseconds that never go back. */
  #changedAt = Number.NEGATIVE_INFINITY;
  /** At another one by the store's clock, and when that was heard here. */
  #changedElsewhere = Number.NEGATIVE_INFINITY;
  #heardAt = Number.NEGATIVE_INFINITY;

  /**
   * @param now in microseconds that never go back
   * @param elsewhere when it was changed at another gateway, by the store's clock
   */
  note(now: number, elsewhere?: number): void {
    if (elsewhere === undefined) {
      this.#changedAt = Math.max(now, this.#changedAt);
      return;
    }
    this.#changedElsewhere = Math.max(elsewhere, this.#changedElsewhere);
    this.#heardAt = now;
  }

  /** When it was changed at this gateway; minus infinity for never. */
  get changedAt(): number {
    return this.#changedAt;
  }

  /**
   * Whether what was asked for at this time may be older than a change.
   * @param decision what was answered. One that the store took after a change elsewhere is not older
   */
  areSince(askedAt: number, decision?: Decision): boolean {
    if (this.#changedAt >= askedAt) return true;
    return this.#heardAt >= askedAt && (decision === undefined || decision.now < this.#changedElsewhere);
  }
}
