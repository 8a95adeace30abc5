import type { Family } from '../../shared/process/counts.ts';
import type { KnownKey, KnownPage } from '../limiter/client.ts';
import type { Use } from '../limiter/credential.ts';
import type { LocalCharge, Verdict } from '../limiter/limiter.ts';
import { startDeadline } from '../limiter/outage.ts';
import type { StoredPlans } from '../limiter/plans.ts';
import type { SavedState } from '../stores/embedded-limiter.ts';
import type { Fields, Storage } from '../stores/storage.ts';
import type { KeyRefusal } from '../telemetry/key-refusals.ts';
import type { KeysOfMinute } from '../telemetry/key-watch.ts';
import type { RequestQuery, RequestReport } from '../telemetry/recent-requests.ts';
import type { ProcessState } from '../telemetry/state.ts';
import type { Happening } from '../webhooks/message.ts';

/** Questions by name, each with the types of the question and of its answer. */
type Questions<Q> = { readonly [name in keyof Q]: readonly [question: unknown, answer: unknown] };

/** How a process answers questions. No answerer may throw. */
export type Answerers<Q extends Questions<Q>> = {
  readonly [name in keyof Q]: (question: Q[name][0]) => Q[name][1] | Promise<Q[name][1]>;
};

/** The other process: `process` in a worker, the worker's process in the primary. */
interface Peer {
  send?(message: object, onSent: () => void): unknown;
  on(event: 'message' | 'disconnect', listener: (message?: unknown) => void): unknown;
  readonly connected: boolean;
}

/** A question has a name; an answer has none. */
type Item = readonly [number: number, name: string | undefined, content: unknown];

export const ANSWER_WITHIN_MS = 1_000;
/** The maximum number of questions without an answer. Beyond this limit, no more are sent. */
const MAX_WAITING = 4_096;

/**
 * Questions and answers between the primary and a worker. All items of one turn of the event loop go into one message,
 * which arrives whole and in order. A process that missed a deadline gets no more questions until it sends something.
 */
export class Channel<Mine extends Questions<Mine>, Theirs extends Questions<Theirs>> {
  readonly #peer: Peer;
  readonly #answerers: Answerers<Theirs>;
  readonly #waiting = new Map<number, (answer: unknown) => void>();
  #outgoing: Item[] = [];
  #number = 0;
  #isSilent = false;
  received = 0;
  /** When the last message arrived, by performance.now(). */
  receivedAt = performance.now();

  constructor(peer: Peer, answerers: Answerers<Theirs>) {
    this.#peer = peer;
    this.#answerers = answerers;
    peer.on('message', (message) => this.#take((message as { items?: readonly Item[] } | null)?.items ?? []));
    peer.on('disconnect', () => this.#waiting.forEach((end) => void end(undefined)));
  }

  /** @returns the answer; undefined if none arrived in time or the other process is gone */
  async ask<Name extends keyof Mine & string>(name: Name, question: Mine[Name][0], withinMs = ANSWER_WITHIN_MS) {
    if (this.#isSilent || this.#waiting.size >= MAX_WAITING) return undefined;
    return await this.insist(name, question, withinMs);
  }

  /** Like `ask`, but also asks a process that has missed a deadline. Use it for questions that must be answered. */
  async insist<Name extends keyof Mine & string>(name: Name, question: Mine[Name][0], withinMs: number) {
    if (!this.#peer.connected) return undefined;
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
    return await promise;
  }

  /** Sends a question without waiting for an answer. */
  send<Name extends keyof Mine & string>(name: Name, content: Mine[Name][0]): void {
    this.#post([this.#number++, name, content]);
  }

  #post(item: Item): void {
    if (this.#outgoing.push(item) > 1) return;
    setImmediate(() => {
      const items = this.#outgoing;
      this.#outgoing = [];
      // If a message cannot be sent, the other process has exited, and its exit is handled elsewhere.
      if (this.#peer.connected) this.#peer.send?.({ items }, () => {});
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

/** What the primary asks a worker: for each question its content and its answer. */

export interface AskedOfWorker {
  readonly report: readonly [undefined, WorkerReport | undefined];
  /** The worker's last matching requests, the newest first. */
  readonly requests: readonly [
    RequestQuery,
    { readonly requests: readonly RequestReport[]; readonly keptSince: number },
  ];
  /** What the worker knows about a key. */
  readonly key: readonly [id: string, KnownKey | undefined];
  /**
   * What the worker knows about all keys, page by page, the most recently used first. After the last page, pages are
   * empty.
   */
  readonly keys: readonly ['first' | 'next', KnownPage];
  /** A change was made. Once the worker has answered, it no longer acts on older data. */
  readonly changed: readonly [Changed, true];
  /**
   * The worker sends the state of a key to be saved and forgets the key, then answers. Sent when the record of the key
   * is about to change, or when another worker loads the key.
   */
  readonly release: readonly [{ readonly id: string; readonly isChanged: boolean }, true];
  /** The worker sends all states that are not stored yet, then answers. */
  readonly flush: readonly [undefined, true];
}

export interface AskedOfPrimary {
  readonly start: readonly [undefined, StartOrder];
  /** Sent at intervals, so that a crash loses few counts. Undefined while there is nothing to count. */
  readonly report: readonly [WorkerReport | undefined, undefined];
  /** A key that a Redis decision has banned. */
  readonly banned: readonly [{ readonly id: string; readonly known: KnownKey }, undefined];
  /** A key event for WEBHOOK_URL. The primary keeps it if the worker exits. */
  readonly happened: readonly [Happening, undefined];
  /** A local decision or peek while Redis is unavailable. Undefined if it would come too late. */
  readonly decide: readonly [LocalQuestion, Verdict | 'not verified' | undefined];
  /** The last refusals of a key by all gateways. Undefined if they cannot be read now. */
  readonly refusals: readonly [id: string, readonly KeyRefusal[] | undefined];
  /**
   * Used only without Redis, like the next two. Loads the fields of a key, if it exists. Undefined if they cannot be
   * read.
   */
  readonly load: readonly [id: string, { readonly fields: Fields | undefined } | undefined];
  /** Stores states. Answers whether they are stored. */
  readonly save: readonly [{ readonly states: readonly SavedState[]; readonly mustBeDurable: boolean }, boolean];
  /** A call to the storage, which only the primary has open. */
  readonly call: readonly [{ readonly method: keyof Storage; readonly args: readonly unknown[] }, CallAnswer];
}

/**
 * Why a worker is started: it is the first in its slot, it replaces one that crashed (`replacement`), or it replaces a
 * serving one in a rolling restart (`renewal`).
 */
export type Reason = 'first' | 'replacement' | 'renewal';

export interface StartOrder {
  readonly reason: Reason;
  /** The plans in the primary, if it has read them. */
  readonly plans: StoredPlans | undefined;
}

export interface WorkerReport extends ProcessState {
  readonly counted: readonly Family[];
  /** All other measurements; sent only on request. */
  readonly metrics?: readonly Family[] | undefined;
  readonly isLoaded: boolean;
  readonly isLocal: boolean;
  readonly banned: KeysOfMinute;
}

export interface LocalQuestion {
  readonly id: string;
  readonly digest: string;
  readonly use: Use;
  /** When the worker last got Redis' reply about the key, by the machine's monotonic clock; 0 for never. */
  readonly repliedAt: number;
  /** When the worker asks, by the same clock. If no answer arrives within a second, it decides itself. */
  readonly askedAt: number;
  readonly charge: LocalCharge;
}

/**
 * What an operator changed: one key, the plan table (which the message includes), or an unknown set of keys. `isReset`
 * is set if the change filled both buckets.
 */
export type Changed =
  | { readonly key: string; readonly isReset?: boolean }
  | { readonly plans: StoredPlans }
  | { readonly anyKey: true };

type CallAnswer =
  | undefined
  | { readonly value: unknown }
  | {
      readonly fault: 'not made' | 'unknown' | 'unavailable';
      readonly message: string;
      readonly shown: string | undefined;
    };
