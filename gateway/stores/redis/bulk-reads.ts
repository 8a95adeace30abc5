import { setTimeout as sleep } from 'node:timers/promises';

/** Keys that are read at once: a decision waits for at most this many reads. */
const AT_ONCE = 32;
/**
 * Reads pause after this many keys, and other lists get their turn. A page for an operator has no more, so it needs no
 * pause.
 */
const PAGE = 100;

/**
 * Reads many keys without slowing decisions: all lists together read a few keys at a time, and pause after each page as
 * long as it took, at least a millisecond. Lists take turns.
 */
export class BulkReads<Id extends string, Found> {
  readonly #read: (id: Id) => Promise<Found>;
  #lastTurn: Promise<unknown> = Promise.resolve();

  constructor(read: (id: Id) => Promise<Found>) {
    this.#read = read;
  }

  async read(ids: readonly Id[]): Promise<Found[]> {
    const found: Found[] = [];
    for (let at = 0; at < ids.length; at += PAGE) found.push(...(await this.#inTurn(ids.slice(at, at + PAGE))));
    return found;
  }

  #inTurn(ids: readonly Id[]): Promise<Found[]> {
    let beganAt = 0;
    const found = this.#lastTurn.then(() => {
      beganAt = performance.now();
      return this.#readPage(ids);
    });
    const pause = () => sleep(performance.now() - beganAt);
    this.#lastTurn = found.then(pause, pause);
    return found;
  }

  async #readPage(ids: readonly Id[]): Promise<Found[]> {
    const found: Found[] = [];
    for (let at = 0; at < ids.length; at += AT_ONCE)
      found.push(...(await Promise.all(ids.slice(at, at + AT_ONCE).map(this.#read))));
    return found;
  }
}
