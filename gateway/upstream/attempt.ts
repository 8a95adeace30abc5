import type { Answer } from './answer.ts';
import type { Asked } from './asked.ts';
import type { Core } from './core.ts';
import { ClientGone, WrongAnswer } from './faults.ts';
import type { Lane } from './lane.ts';
import type { PipelinedConnection } from './pipelined-connection.ts';
import { attemptIdOf, type UpstreamRequest } from './request-head.ts';
import type { AnsweredSocket } from './streamed-answer.ts';

/** The call that an attempt is for. */
export interface Attempted {
  readonly forwarding: { readonly request: UpstreamRequest };
  /** Whether the client has left. */
  readonly isAbandoned: boolean;
  readonly hasAttemptsLeft: boolean;
  hedge(core: Core, now: number): void;
  answered(attempt: Attempt, answer: Answer, now: number): void;
  streamed(attempt: Attempt, socket: AnsweredSocket): void;
  failed(attempt: Attempt, fault: unknown): void;
}

/** One attempt to get an answer to a call, on a shared connection or on its own. */
export class Attempt implements Asked {
  readonly call: Attempted;
  readonly core: Core;
  readonly id: string;
  readonly createdAt: number;
  /** When it was handed to a connection, as of performance.now(). */
  askedAt: number;
  isWanted = true;
  /** The lane of its shared connection, if it uses one. */
  lane: Lane | undefined;
  /** The lane whose budget pays for it, if it is a hedged request. */
  hedgeLane: Lane | undefined;
  #own: PipelinedConnection | undefined;
  #hasPlace = false;
  #waitsForPlace = false;

  constructor(call: Attempted, core: Core, now: number) {
    this.call = call;
    this.core = core;
    this.id = attemptIdOf(call.forwarding.request.id);
    this.createdAt = now;
    this.askedAt = now;
    core.limit.enter();
  }

  get request(): UpstreamRequest {
    return this.call.forwarding.request;
  }

  get client(): string {
    return this.request.client;
  }

  /** False while all connections that its client may have are in use. */
  get isSent(): boolean {
    return !this.#waitsForPlace;
  }

  get isAlone(): boolean {
    return this.#own !== undefined;
  }

  /** Asks on its own connection, as soon as there is one for its client. */
  askAlone(): void {
    this.#waitsForPlace = true;
    this.core.places.take(this);
  }

  /** Called when there is a place. */
  start(): void {
    this.#waitsForPlace = false;
    this.#hasPlace = true;
    const own = this.core.ownConnections.pop() ?? this.core.openConnection();
    this.#own = own;
    // Without ids in answers, a late answer cannot be told from the next one.
    if (!this.core.echoes) own.end();
    // After the poll phase: if the core has closed the connection, or has sent what nobody asked for, it is known by then.
    setImmediate(() => this.#ask(own));
  }

  #ask(own: PipelinedConnection): void {
    if (!this.isWanted) {
      this.#letGo();
      return;
    }
    this.askedAt = performance.now();
    try {
      if (this.call.isAbandoned) throw new ClientGone();
      own.ask(this, this.askedAt);
    } catch (fault) {
      this.failed(fault);
    }
  }

  answered(answer: Answer, now: number): void {
    if (this.isWanted) {
      this.isWanted = false;
      this.call.answered(this, answer, now);
    }
    if (!this.core.echoes) this.#own?.end();
    this.#letGo();
  }

  streamed(socket: AnsweredSocket): void {
    if (!this.isWanted) {
      this.released();
      return;
    }
    this.isWanted = false;
    this.call.streamed(this, socket);
  }

  failed(fault: unknown): void {
    if (fault instanceof WrongAnswer) this.core.echoes = false;
    this.released();
    if (!this.isWanted) return;
    this.isWanted = false;
    this.call.failed(this, fault);
  }

  /** One that was not sent tells nothing about the core. */
  timedOut(now: number): void {
    if (!this.isSent) return;
    this.core.limit.learn(this.createdAt, now);
    this.core.counts.answered(now - this.createdAt);
    this.core.counts.failed('timeout');
  }

  /** Ends its own connection: the rest of an answer must not reach the next request. */
  released(): void {
    this.#own?.end();
    this.#letGo();
  }

  /** Nobody waits for it any longer. Its own connection is closed, which the core can see. */
  cancel(): void {
    if (!this.isWanted) return;
    this.isWanted = false;
    if (this.#waitsForPlace) {
      this.core.places.cancel(this);
      this.#letGo();
    } else this.#own?.end();
  }

  #letGo(): void {
    this.core.limit.leave();
    if (!this.#hasPlace) return;
    this.#hasPlace = false;
    if (this.#own !== undefined) this.core.ownConnections.push(this.#own);
    this.#own = undefined;
    this.core.places.release(this.client);
  }
}
