import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { Client, type Dispatcher } from 'undici';

/**
 * A connection on which an answer has begun that is too large to be taken whole, for a client that thinks that it has
 * still to ask. What it writes goes nowhere; then it reads what was read before, and the rest. As long as it takes
 * nothing, nothing is read from the core. A piece is read in a turn of the event loop: others are served between two.
 */
export class AnswerBytes extends Duplex {
  readonly #socket: Socket;
  #begun: Buffer | undefined;

  constructor(socket: Socket, begun: Buffer) {
    super();
    this.#socket = socket;
    this.#begun = begun;
  }

  /** The connection was lost; at the end of its data if there was no fault. */
  lost(fault: Error | undefined): void {
    if (fault === undefined) this.push(null);
    else this.destroy(fault);
  }

  override _read(): void {
    if (this.#begun === undefined) setImmediate(() => this.#socket.resume());
  }

  override _write(_request: Buffer, _encoding: BufferEncoding, callback: () => void): void {
    if (this.#begun !== undefined) this.push(this.#begun);
    this.#begun = undefined;
    callback();
  }

  override _destroy(fault: Error | null, callback: (fault?: Error | null) => void): void {
    this.#socket.destroy();
    callback(fault);
  }
}

/**
 * Reads an answer that has begun, with undici, which takes it for the answer to a request of its own.
 * @param method of the request
 * @param timeoutMs for each piece of it
 */
export function streamAnswer(
  bytes: Duplex,
  handler: Dispatcher.DispatchHandler,
  method: string,
  timeoutMs: number,
): void {
  const client = new Client('http://core', {
    // undici does not expect to be connected at once.
    connect: (_options, callback) => process.nextTick(callback, null, bytes),
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  });
  client.dispatch({ method: method as Dispatcher.HttpMethod, path: '/', reset: true }, handler);
  void client.close();
}
