import { startDeadline } from '../limiter/breaker.ts';
import type { Credential } from '../limiter/credential.ts';
import type { KnownKeys, LocalDecisions } from '../limiter/known-keys.ts';
import type { Decision, Unauthorized, Verdict } from '../limiter/limiter.ts';
import {
  type FromWorkerLocally,
  type HeardKey,
  type LocalQuestion,
  Outbox,
  type ToWorkerLocally,
} from './local-messages.ts';

/** Longer than the primary waits for the workers. */
const ANSWER_WITHIN_MS = 1_000;
/** Questions that wait for the primary. Above this limit, a worker decides with its own data. */
const MAX_QUESTIONS = 4_096;

/**
 * A worker's local decisions. The primary takes them because it knows what all workers know. If the primary is gone or
 * does not answer in time, the worker decides with its own data.
 */
export class KeysOfMachine implements LocalDecisions {
  readonly #own: KnownKeys;
  readonly #waiting = new Map<number, (verdict: Verdict | undefined) => void>();
  readonly #outbox = new Outbox<LocalQuestion, HeardKey>((questions, heard) => tell({ local: { questions, heard } }));
  #number = 0;
  /** The primary missed a deadline and has sent nothing since. */
  #isPrimarySilent = false;

  constructor(own: KnownKeys) {
    this.#own = own;
    process.on(
      'message',
      (message: Partial<ToWorkerLocally> | undefined) => message?.local && this.#take(message.local),
    );
  }

  note(credential: Credential, verdict: Decision | Unauthorized, wasDecided: boolean): void {
    this.#own.note(credential, verdict, wasDecided);
  }

  decide(credential: Credential): Verdict | undefined | Promise<Verdict | undefined> {
    return this.#canAsk ? this.#ask('decide', credential) : this.#own.decide(credential);
  }

  peek(credential: Credential): Verdict | undefined | Promise<Verdict | undefined> {
    return this.#canAsk ? this.#ask('peek', credential) : this.#own.peek(credential);
  }

  get #canAsk(): boolean {
    return process.connected && !this.#isPrimarySilent && this.#waiting.size < MAX_QUESTIONS;
  }

  #ask(ask: LocalQuestion['ask'], credential: Credential): Promise<Verdict | undefined> {
    const { promise, resolve } = Promise.withResolvers<Verdict | undefined>();
    const number = this.#number++;
    const endDeadline = startDeadline(ANSWER_WITHIN_MS, () => {
      this.#isPrimarySilent = true;
      end(undefined);
    });
    // If the primary did not learn of the key in time, it knows less than a worker that has seen it.
    const end = (verdict: Verdict | undefined) => {
      endDeadline();
      this.#waiting.delete(number);
      resolve(verdict ?? this.#own[ask](credential));
    };
    this.#waiting.set(number, end);
    const { id, digest, use } = credential;
    this.#outbox.addFirst({ ask, number, id, digest, use, heardAt: this.#own.heardAt(id) });
    return promise;
  }

  #take({ answers, wanted }: ToWorkerLocally['local']): void {
    this.#isPrimarySilent = false;
    for (const { number, verdict } of answers) this.#waiting.get(number)?.(verdict);
    for (const id of wanted) this.#outbox.addSecond({ id, known: this.#own.tell(id) });
  }
}

/** Sends nothing if the primary is gone. */
function tell(message: FromWorkerLocally): void {
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
}
