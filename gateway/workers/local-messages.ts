import type { Use } from '../limiter/credential.ts';
import type { ToldKey } from '../limiter/known-keys.ts';
import type { Verdict } from '../limiter/limiter.ts';

/**
 * Messages between a worker and its primary while Redis is unavailable, so that a key has one local allowance per
 * machine. All items of one turn of the event loop go into one message.
 */

/** A request that needs a local decision, or only a key's limit status. */
export interface LocalQuestion {
  readonly ask: 'decide' | 'peek';
  readonly number: number;
  readonly id: string;
  readonly digest: string;
  readonly use: Use;
  /** When the worker last heard of the key, on Redis' clock; 0 for never. */
  readonly heardAt: number;
}

/** What a worker last heard of a key from Redis. */
export interface HeardKey {
  readonly id: string;
  readonly known?: ToldKey | undefined;
}

/** Without a verdict if no worker knows the key. */
export interface LocalAnswer {
  readonly number: number;
  readonly verdict?: Verdict | undefined;
}

export interface FromWorkerLocally {
  readonly local: { readonly questions: readonly LocalQuestion[]; readonly heard: readonly HeardKey[] };
}

export interface ToWorkerLocally {
  readonly local: { readonly answers: readonly LocalAnswer[]; readonly wanted: readonly string[] };
}

/** Collects the items of one turn of the event loop. */
export class Outbox<A, B> {
  readonly #send: (first: readonly A[], second: readonly B[]) => void;
  #first: A[] = [];
  #second: B[] = [];

  constructor(send: (first: readonly A[], second: readonly B[]) => void) {
    this.#send = send;
  }

  addFirst(item: A): void {
    this.#schedule();
    this.#first.push(item);
  }

  addSecond(item: B): void {
    this.#schedule();
    this.#second.push(item);
  }

  #schedule(): void {
    if (this.#first.length + this.#second.length > 0) return;
    setImmediate(() => {
      const [first, second] = [this.#first, this.#second];
      this.#first = [];
      this.#second = [];
      this.#send(first, second);
    });
  }
}
