import { setTimeout as sleep } from 'node:timers/promises';

/** Keys that are read together: Redis answers this many before it turns to a decision. */
const AT_ONCE = 32;

/**
 * Reads many keys without a burden on decisions: a few keys at a time, over all lists together, and then a pause as long
 * as they took, at least a millisecond. Lists take turns.
 */
export class BulkReads<Hash> {
  readonly #read: (id: string) => Promise<Hash>;
  #lastTurn: Promise<unknown> = Promise.resolve();

  constructor(read: (id: string) => Promise<Hash>) {
    this.#read = read;
  }

  async read(ids: readonly string[]): Promise<Hash[]> {
    const hashes: Hash[] = [];
    for (let at = 0; at < ids.length; at += AT_ONCE) hashes.push(...(await this.#inTurn(ids.slice(at, at + AT_ONCE))));
    return hashes;
  }

  #inTurn(ids: readonly string[]): Promise<Hash[]> {
    let beganAt = 0;
    const hashes = this.#lastTurn.then(() => {
      beganAt = performance.now();
      return Promise.all(ids.map(this.#read));
    });
    const pause = () => sleep(performance.now() - beganAt);
    this.#lastTurn = hashes.then(pause, pause);
    return hashes;
  }
}
