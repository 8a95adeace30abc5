import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { FairQueue, mayHoldMore } from '../../shared/fair-share.ts';
import { AddressAllowance } from '../limiter/address-allowance.ts';
import { systemClock } from '../limiter/clock.ts';

/** Refusals per client and minute that are sent at once. */
const PROMPT_A_MINUTE = 60;
/** While requests of other clients are served: 1,000 delayed refusals a second. */
const PER_TICK = 4;
const TICK_MS = 4;
/** So many served requests earn one refusal more. */
const SERVED_FOR_ONE = 4;
/** Otherwise, before each turn of the event loop. A request that comes then waits for them, about two milliseconds. */
const WHEN_IDLE = 32;
/** How long after the last served request refusals still make room. */
const MAKES_ROOM_MS = 1_000;
const MAX_WAITING = 10_000;
/** Delayed refusals on a connection before it is closed. */
const MOST_ON_CONNECTION = 100;

/** To read so many bytes of a body and refuse it costs as much as a refusal without a body. */
const BYTES_PER_REFUSAL = 2_048;
const MAX_COST = 500;

/** The cost of refusing a body that is longer than this limit, in refusals without a body. */
export const costOfBody = (limitBytes: number): number => Math.min(1 + limitBytes / BYTES_PER_REFUSAL, MAX_COST);

interface Waiting {
  readonly release: () => void;
  readonly cost: number;
}

/**
 * Delays refusals. A client that keeps sending after refusals costs as much as a served one, so its cost is bounded:
 * its first refusals in a minute are sent at once. The others wait in a queue that serves its clients in turn. A waiting
 * client sends nothing meanwhile. While other clients are served, a few refusals are sent every few milliseconds: the
 * more requests are served, the more refusals. Otherwise as many are sent as a turn of the event loop can bear.
 */
export class RefusalPacing {
  readonly #prompt = new AddressAllowance(systemClock, PROMPT_A_MINUTE);
  readonly #perConnection = new WeakMap<Socket, number>();
  readonly #waiting = new FairQueue<Waiting>();
  /** The cost that may still be spent. Negative after a refusal that cost more than was left. */
  #left = 0;
  /** What served requests have earned, in refusals. */
  #earned = 0;
  /** The client that was served last, and when; and when another client was. */
  #served = '';
  #servedAt = Number.NEGATIVE_INFINITY;
  #otherServedAt = Number.NEGATIVE_INFINITY;

  /** Notes an admitted request. From now on the refusals of other clients are slow; it earns them a part of a refusal. */
  noteAdmitted(client: string): void {
    if (client !== this.#served) this.#otherServedAt = this.#servedAt;
    this.#served = client;
    this.#servedAt = performance.now();
    this.#earned = Math.min(this.#earned + 1 / SERVED_FOR_ONE, WHEN_IDLE - PER_TICK);
  }

  /** Whether a client other than this one was served a moment ago. */
  #othersAreServed(client: string | undefined): boolean {
    const othersServedAt = client === this.#served ? this.#otherServedAt : this.#servedAt;
    return performance.now() - othersServedAt < MAKES_ROOM_MS;
  }

  /**
   * Undefined if a refusal may be sent at once, otherwise a promise that resolves when it may. If too many wait, the
   * connection is cut.
   * @param client the name of a verified key, or an address
   * @param cost of this refusal, in refusals without a body
   */
  delay(client: string, response: ServerResponse, cost = 1): Promise<void> | undefined {
    if (this.#prompt.consume(client).outcome === 'admitted') return undefined;
    const { socket } = response.req;
    const refused = (this.#perConnection.get(socket) ?? 0) + 1;
    this.#perConnection.set(socket, refused);
    if (refused >= MOST_ON_CONNECTION) response.shouldKeepAlive = false;
    const { promise, resolve } = Promise.withResolvers<void>();
    const { size, clients } = this.#waiting;
    if (mayHoldMore(this.#waiting.of(client), MAX_WAITING, size, clients)) {
      this.#waiting.add(client, { release: resolve, cost });
      if (this.#waiting.size === 1) this.#schedule();
    } else response.once('close', resolve).destroy();
    return promise;
  }

  #schedule(): void {
    const onlyServedWaits = this.#waiting.of(this.#served) === this.#waiting.size;
    if (this.#othersAreServed(onlyServedWaits ? this.#served : undefined)) setTimeout(this.#tick, TICK_MS);
    else setImmediate(this.#spend, WHEN_IDLE);
  }

  readonly #tick = (): void => {
    const earned = Math.floor(this.#earned);
    this.#earned -= earned;
    this.#spend(PER_TICK + earned);
  };

  readonly #spend = (most: number): void => {
    this.#left = Math.min(this.#left, 0) + most;
    while (this.#left > 0 && this.#waiting.size > 0) {
      const { release, cost } = this.#waiting.take() as Waiting;
      release();
      this.#left -= cost;
    }
    if (this.#waiting.size > 0) this.#schedule();
  };
}
