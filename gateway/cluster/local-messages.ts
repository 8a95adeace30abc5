import type { ToldKey } from '../access/known-keys.ts';
import type { Verdict } from '../access/verdict.ts';

/**
 * What a worker and its primary say to each other while Redis is away, so that a key has one local allowance on a machine.
 * What belongs to one turn of the event loop is one message.
 */

/** A request that is to be decided without Redis, or only asks where its key stands. */
export interface LocalQuestion {
  readonly ask: 'decide' | 'peek';
  readonly number: number;
  readonly id: string;
  readonly digest: string;
  /** When the worker last heard of the key, by Redis' clock; 0 for never. */
  readonly heardAt: number;
}

/** What a worker last heard of a key from Redis. */
export interface HeardKey {
  readonly id: string;
  readonly known?: ToldKey | undefined;
}

/** The verdict is missing where no worker knows the key. */
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

/** Collects what is to be sent in one turn of the event loop. */
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
