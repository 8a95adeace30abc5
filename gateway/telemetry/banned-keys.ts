import type { Verdict } from '../limiter/verdict.ts';

const MINUTE_MS = 60_000;
/** Keys that one process tells apart in a minute. */
const MOST_KEYS = 1_000;

/** The keys that had a request refused by a ban in a minute, counted since 1970. */
export interface KeysOfMinute {
  readonly minute: number;
  readonly ids: readonly string[];
}

/** Tells the banned keys of the current minute apart, so that operators see keys and not only requests. */
export class BannedKeys {
  readonly #now: () => number;
  #minute = -1;
  #ids = new Set<string>();

  /** @param now Unix time in ms */
  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  note(keyId: string | undefined, { outcome }: Verdict): void {
    if (outcome !== 'banned' || keyId === undefined) return;
    const minute = Math.floor(this.#now() / MINUTE_MS);
    if (minute !== this.#minute) {
      this.#minute = minute;
      this.#ids = new Set();
    }
    if (this.#ids.size < MOST_KEYS) this.#ids.add(keyId);
  }

  /** Those of the last minute that had any. */
  latest(): KeysOfMinute {
    return { minute: this.#minute, ids: [...this.#ids] };
  }
}
