import type { Logger } from '../../shared/process/logger.ts';

const EVERY_MS = 60_000;

/**
 * Tells the log that a good secret came from outside its networks: it may be in the wrong hands. One line a minute at most, with how
 * many there were since the last one.
 */
export class ElsewhereLog {
  readonly #logger: Logger;
  #toldAt = Number.NEGATIVE_INFINITY;
  #since = 0;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  note(keyId: string | undefined, address: string, requestId: string): void {
    this.#since += 1;
    const now = performance.now();
    if (now - this.#toldAt < EVERY_MS) return;
    const about = { keyId, address, requestId, requests: this.#since };
    this.#logger.warn(about, 'a secret came from outside its networks and was refused');
    this.#toldAt = now;
    this.#since = 0;
  }
}
