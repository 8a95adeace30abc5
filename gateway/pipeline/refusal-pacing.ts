import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { AddressAllowance } from '../access/address-allowance.ts';
import { systemClock } from '../access/clock.ts';

/** Refusals of a client that are sent at once, in a minute. */
const PROMPT_A_MINUTE = 60;
const PER_TURN = 4;
const MAX_WAITING = 10_000;
/** Refusals of a connection that had to wait, before it is closed. */
const MOST_ON_CONNECTION = 100;

/**
 * Refusals in turn. A client that goes on after its refusals costs as much as one that is served, so what it costs is
 * bounded: its first refusals of a minute are sent at once, the others wait, and every turn of the event loop lets out a
 * few. A client that waits sends nothing meanwhile. On an idle gateway turns are short, so that is fast.
 */
export class RefusalPacing {
  readonly #prompt = new AddressAllowance(systemClock, PROMPT_A_MINUTE);
  readonly #perConnection = new WeakMap<Socket, number>();
  #waiting: (() => void)[] = [];

  /**
   * Undefined where a refusal may be sent at once, otherwise when it may be.
   * @param client the name of a proven key, or an address
   */
  turn(client: string, response: ServerResponse): Promise<void> | undefined {
    if (this.#prompt.consume(client).outcome === 'admitted') return undefined;
    const { socket } = response.req;
    const refused = (this.#perConnection.get(socket) ?? 0) + 1;
    this.#perConnection.set(socket, refused);
    if (refused >= MOST_ON_CONNECTION) response.shouldKeepAlive = false;
    if (this.#waiting.length >= MAX_WAITING) response.destroy();
    return this.#wait();
  }

  #wait(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    if (this.#waiting.push(resolve) === 1) setImmediate(this.#letOut);
    return promise;
  }

  readonly #letOut = (): void => {
    const first = this.#waiting;
    this.#waiting = first.splice(PER_TURN);
    for (const resolve of first) resolve();
    if (this.#waiting.length > 0) setImmediate(this.#letOut);
  };
}
