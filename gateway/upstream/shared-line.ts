import type { Socket } from 'node:net';
import { buildConnector, Client, type Dispatcher } from 'undici';
import { takeOut } from '../../shared/take-out.ts';
import type { WholeRelay } from './whole-relay.ts';

/** How deep requests may be pipelined: as many answers are lost when the connection breaks. */
const DEPTH = 128;
/** Answers come in order. When the one in front is slow, others had better not queue up behind it. */
const STALLED_AFTER_MS = 50;

/**
 * One connection to a core that requests share, pipelined (RFC 9112 §9.3.2): the requests of one turn of the event loop,
 * which is to say of one decided batch, leave in one write. Two thirds of a gateway's time goes into system calls that
 * write, so this is where it becomes fast. Only for what may be asked for twice and has a small answer.
 */
export class SharedLine {
  readonly #client: Client;
  /** What undici has to do, in the order in which it was asked. */
  readonly #relays: WholeRelay[] = [];
  #socket: Socket | undefined;
  #isCorked = false;
  #lastAnswerAt = 0;

  constructor(origin: string, { connectTimeoutMs, keepAliveMs, timeoutMs }: LineOptions) {
    const connect = buildConnector({ timeout: connectTimeoutMs });
    this.#client = new Client(origin, {
      pipelining: DEPTH,
      keepAliveTimeout: keepAliveMs,
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      connect: (options, callback) =>
        connect(options, (...result) => {
          if (result[1] !== null) this.#socket = result[1];
          callback(...result);
        }),
    });
    // undici fails the request in front and sends all others again, as often as it takes: the last of n up to n times.
    this.#client.on('disconnect', (_origin, _targets, fault) => {
      for (const relay of [...this.#relays]) relay.lose(fault);
    });
  }

  /** Whether a request would be answered about as soon as it is sent. */
  get isFree(): boolean {
    if (this.#relays.length === 0) return true;
    return this.#relays.length < DEPTH && performance.now() - this.#lastAnswerAt < STALLED_AFTER_MS;
  }

  dispatch(request: Dispatcher.DispatchOptions, relay: WholeRelay): void {
    if (this.#relays.length === 0) this.#lastAnswerAt = performance.now();
    this.#relays.push(relay);
    this.#client.dispatch({ ...request, blocking: false }, relay);
  }

  /**
   * To be called when undici is about to write a request. That can be a turn after it was dispatched: on a connection that
   * was idle undici first looks whether it still stands.
   */
  writing(): void {
    const socket = this.#socket;
    if (this.#isCorked || socket === undefined) return;
    this.#isCorked = true;
    socket.cork();
    process.nextTick(() => {
      this.#isCorked = false;
      socket.uncork();
    });
  }

  /** To be called when undici has let go of a request. */
  released(relay: WholeRelay): void {
    takeOut(this.#relays, relay);
    this.#lastAnswerAt = performance.now();
  }

  close(): Promise<void> {
    return this.#client.destroy();
  }
}

export interface LineOptions {
  readonly connectTimeoutMs: number;
  readonly keepAliveMs: number;
  readonly timeoutMs: number;
}
