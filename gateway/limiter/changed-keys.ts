import { boundedMap } from '../../shared/bounded-map.ts';
import { monotonicClock } from './clock.ts';

const MAX_KEYS = 10_000;

/**
 * When operators last changed keys. Before a change is acknowledged every process notes it here, and no longer uses or
 * remembers what it asked for before.
 */
export class ChangedKeys {
  readonly #changedAt = boundedMap<string, number>(MAX_KEYS);
  readonly #monotonic: () => number;

  /** @param monotonic microseconds that never go back */
  constructor(monotonic = monotonicClock) {
    this.#monotonic = monotonic;
  }

  /** Notes a change of a key that has just been made. */
  note(id: string): void {
    this.#changedAt.set(id, this.#monotonic());
  }

  /** Whether the key was changed at this time or later. What is known since then may be outdated. */
  hasChangedSince(id: string, time: number): boolean {
    return this.#changedAt.size > 0 && (this.#changedAt.get(id) ?? Number.NEGATIVE_INFINITY) >= time;
  }
}
