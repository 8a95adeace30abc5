import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { FairQueue, mayHoldMore } from '../../shared/fair-share.ts';
import { AddressAllowance } from '../limiter/address-allowance.ts';
import { systemClock } from '../limiter/clock.ts';

/** Refusals per client and minute that are sent at once. */
const PROMPT_A_MINUTE = 60;
/** While requests of other clients are served: 1,000 delayed refusals a second. */
const PER_TURN = 4;
const TURN_MS = 4;
/** So many served requests earn one refusal more. */
const SERVED_FOR_ONE = 4;
/** Otherwise, in each turn of the event loop. A request that comes then waits for them, about two milliseconds. */
const PER_IDLE_TURN = 32;
/** How long after the last served request refusals still make room. */
const MAKES_ROOM_MS = 1_000;
const MAX_WAITING = 10_000;
/** Delayed refusals on a connection before it is closed. */
const MOST_ON_CONNECTION = 100;

/** To read so many bytes of a body and refuse it costs as much as a refusal without a body. */
const BYTES_PER_TURN = 2_048;
const MAX_TURNS = 500;

/** How many turns the refusal of a body takes that exceeds this limit. */
export const turnsOfBody = (limitBytes: number): number => Math.min(1 + limitBytes / BYTES_PER_TURN, MAX_TURNS);

interface Waiting {
  readonly letOut: () => void;
  readonly turns: number;
}

/**
 * Delays refusals. A client that keeps sending after refusals costs as much as a served one, so its cost is bounded:
 * its first refusals in a minute are sent at once. The others wait for their turn, and clients take turns. A waiting
 * client sends nothing meanwhile. While other clients are served, turns are a few milliseconds apart, and the more are
 * served, the more refusals a turn lets out. Otherwise there is one in each turn of the event loop.
 */
export class RefusalPacing {
  readonly #prompt = new AddressAllowance(systemClock, PROMPT_A_MINUTE);
  readonly #perConnection = new WeakMap<Socket, number>();
  readonly #waiting = new FairQueue<Waiting>();
  /** Turns that are left. Negative after a refusal that takes more than there were. */
  #turns = 0;
  /** Turns that served requests have earned. */
  #earned = 0;
  /** The client that was served last, and when; and when another client was. */
  #served = '';
  #servedAt = Number.NEGATIVE_INFINITY;
  #otherServedAt = Number.NEGATIVE_INFINITY;

  /**
   * To be called for each admitted request. From now on the refusals of other clients make room. Each admitted request
   * earns them a part of a turn.
   */
  makeRoomFor(client: string): void {
    if (client !== this.#served) this.#otherServedAt = this.#servedAt;
    this.#served = client;
    this.#servedAt = performance.now();
    this.#earned = Math.min(this.#earned + 1 / SERVED_FOR_ONE, PER_IDLE_TURN - PER_TURN);
  }

  /** Whether a client other than this one was served a moment ago. */
  othersAreServed(client: string | undefined): boolean {
    const othersServedAt = client === this.#served ? this.#otherServedAt : this.#servedAt;
    return performance.now() - othersServedAt < MAKES_ROOM_MS;
  }

  /**
   * Undefined if a refusal may be sent at once, otherwise a promise that resolves when it may. If too many wait, the
   * connection is cut.
   * @param client the name of a proven key, or an address
   * @param turns how many turns this refusal takes
   */
  turn(client: string, response: ServerResponse, turns = 1): Promise<void> | undefined {
    if (this.#prompt.consume(client).outcome === 'admitted') return undefined;
    const { socket } = response.req;
    const refused = (this.#perConnection.get(socket) ?? 0) + 1;
    this.#perConnection.set(socket, refused);
    if (refused >= MOST_ON_CONNECTION) response.shouldKeepAlive = false;
    const { promise, resolve } = Promise.withResolvers<void>();
    const { size, clients } = this.#waiting;
    if (mayHoldMore(this.#waiting.of(client), MAX_WAITING, size, clients)) {
      this.#waiting.add(client, { letOut: resolve, turns });
      if (this.#waiting.size === 1) this.#schedule();
    } else response.once('close', resolve).destroy();
    return promise;
  }

  #schedule(): void {
    const isAlone = this.#waiting.of(this.#served) === this.#waiting.size;
    if (this.othersAreServed(isAlone ? this.#served : undefined)) setTimeout(this.#letOutSlowly, TURN_MS);
    else setImmediate(this.#letOut, PER_IDLE_TURN);
  }

  readonly #letOutSlowly = (): void => {
    const earned = Math.floor(this.#earned);
    this.#earned -= earned;
    this.#letOut(PER_TURN + earned);
  };

  readonly #letOut = (most: number): void => {
    this.#turns = Math.min(this.#turns, 0) + most;
    while (this.#turns > 0 && this.#waiting.size > 0) {
      const { letOut, turns } = this.#waiting.take() as Waiting;
      letOut();
      this.#turns -= turns;
    }
    if (this.#waiting.size > 0) this.#schedule();
  };
}
