import { startDeadline } from '../limiter/outage.ts';

/** Questions by name, each with the types of the question and of its answer. */
export type Questions<Q> = { readonly [name in keyof Q]: readonly [question: unknown, answer: unknown] };

type Answerers<Q extends Questions<Q>> = {
  readonly [name in keyof Q]: (question: Q[name][0]) => Q[name][1] | Promise<Q[name][1]>;
};

/** The other process: `process` in a worker, a cluster.Worker in the primary. */
interface Peer {
  send?(message: object, onSent: () => void): unknown;
  on(event: 'message' | 'disconnect', listener: (message?: unknown) => void): unknown;
  isConnected?(): boolean;
  readonly connected?: boolean;
}

/** A question has a name; an answer has none. */
type Item = readonly [number: number, name: string | undefined, content: unknown];

const ANSWER_WITHIN_MS = 1_000;
/** The most questions without an answer. Beyond this limit no more are asked. */
const MAX_WAITING = 4_096;

/**
 * Questions and answers between the primary and a worker. All items of one turn of the event loop go into one message,
 * which arrives whole, in order, and with its undefined values. A process that missed a deadline is not asked again until
 * it sends something.
 */
export class Channel<Mine extends Questions<Mine>, Theirs extends Questions<Theirs>> {
  readonly #peer: Peer;
  readonly #answerers: Answerers<Theirs>;
  readonly #waiting = new Map<number, (answer: unknown) => void>();
  #outgoing: Item[] = [];
  #number = 0;
  #isSilent = false;
  received = 0;
  /** When the last message arrived, as of performance.now(). */
  receivedAt = performance.now();

  /** @param answerers answer the other process's questions, and must not throw */
  constructor(peer: Peer, answerers: Answerers<Theirs>) {
    this.#peer = peer;
    this.#answerers = answerers;
    peer.on('message', (message) => this.#take((message as { items?: readonly Item[] } | null)?.items ?? []));
    peer.on('disconnect', () => this.#waiting.forEach((end) => void end(undefined)));
  }

  /** @returns the answer; undefined if none arrived in time or the other process is gone */
  ask<Name extends keyof Mine & string>(
    name: Name,
    question: Mine[Name][0],
    withinMs = ANSWER_WITHIN_MS,
  ): Promise<Mine[Name][1] | undefined> {
    if (this.#isSilent || this.#waiting.size >= MAX_WAITING) return Promise.resolve(undefined);
    return this.insist(name, question, withinMs);
  }

  /** Also asks a process that missed a deadline, for questions that it must answer. */
  insist<Name extends keyof Mine & string>(
    name: Name,
    question: Mine[Name][0],
    withinMs: number,
  ): Promise<Mine[Name][1] | undefined> {
    if (!this.#isConnected) return Promise.resolve(undefined);
    const { promise, resolve } = Promise.withResolvers<Mine[Name][1] | undefined>();
    const number = this.#number++;
    const end = (answer: unknown) => {
      endDeadline();
      this.#waiting.delete(number);
      resolve(answer as Mine[Name][1]);
    };
    const endDeadline = startDeadline(withinMs, () => {
      this.#isSilent = true;
      end(undefined);
    });
    this.#waiting.set(number, end);
    this.#post([number, name, question]);
    return promise;
  }

  /** Sends a question without waiting for an answer. */
  send<Name extends keyof Mine & string>(name: Name, content: Mine[Name][0]): void {
    this.#post([this.#number++, name, content]);
  }

  get #isConnected(): boolean {
    return this.#peer.isConnected?.() ?? this.#peer.connected === true;
  }

  #post(item: Item): void {
    if (this.#outgoing.push(item) > 1) return;
    setImmediate(() => {
      const items = this.#outgoing;
      this.#outgoing = [];
      // If a message cannot be sent, the other process has ended, and its end is handled elsewhere.
      if (this.#isConnected) this.#peer.send?.({ items }, () => {});
    });
  }

  #take(items: readonly Item[]): void {
    this.received += 1;
    this.receivedAt = performance.now();
    this.#isSilent = false;
    for (const [number, name, content] of items) {
      if (name === undefined) this.#waiting.get(number)?.(content);
      else void this.#answer(number, name as keyof Theirs, content);
    }
  }

  async #answer<Name extends keyof Theirs>(number: number, name: Name, question: Theirs[Name][0]): Promise<void> {
    this.#post([number, undefined, await this.#answerers[name](question)]);
  }
}
