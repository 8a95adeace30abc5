import type { Answer } from './answer.ts';
import type { Core } from './cores.ts';
import { WrongAnswer } from './faults.ts';
import type { Lane } from './lane.ts';
import type { Asked, PipelinedConnection } from './pipelined-connection.ts';
import type { Read } from './read.ts';
import type { UpstreamRequest } from './request.ts';

/** One attempt to have a read answered: on a connection with others, or on one of its own. */
export class Attempt implements Asked {
  readonly read: Read;
  readonly core: Core;
  readonly createdAt: number;
  /** When it was handed to a connection; of performance.now(). */
  askedAt: number;
  isWanted = true;
  /** Where it shares a connection. */
  lane: Lane | undefined;
  /** Whose budget pays for it, where it is asked beside another one. */
  paidBy: Lane | undefined;
  #own: PipelinedConnection | undefined;
  #hasPlace = false;
  #waitsForPlace = false;
  #isFresh = false;

  constructor(read: Read, core: Core, now: number) {
    this.read = read;
    this.core = core;
    this.createdAt = now;
    this.askedAt = now;
    core.limit.enter();
  }

  get request(): UpstreamRequest {
    return this.read.forwarding.request;
  }

  get client(): string {
    return this.request.client;
  }

  /**
   * Asks on a connection that it has to itself, once there is one for its client.
   * @param isFresh whether the connection must have served nobody before
   */
  askAlone(isFresh: boolean): void {
    this.#isFresh = isFresh;
    this.#waitsForPlace = true;
    this.core.places.take(this);
  }

  /** Called when there is a place. */
  start(): void {
    this.#waitsForPlace = false;
    this.#hasPlace = true;
    this.askedAt = performance.now();
    this.#own = this.core.ownConnections.pop() ?? this.core.openConnection();
    if (this.#isFresh) this.#own.end();
    try {
      this.#own.ask(this, this.askedAt);
    } catch (fault) {
      this.failed(fault);
    }
  }

  answered(answer: Answer, now: number): void {
    if (this.isWanted) {
      this.isWanted = false;
      this.read.answered(this, answer, now);
    }
    // Only where answers carry ids can a late one be told from the next.
    if (!this.core.echoes) this.#own?.end();
    this.#letGo();
  }

  failed(fault: unknown): void {
    if (fault instanceof WrongAnswer) this.core.echoes = false;
    // What is left of an answer must not reach the next one.
    this.#own?.end();
    this.#letGo();
    if (!this.isWanted) return;
    this.isWanted = false;
    this.read.failed(this, fault);
  }

  /** Nobody waits for it any more. A connection of its own ends, which the core can see. */
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
