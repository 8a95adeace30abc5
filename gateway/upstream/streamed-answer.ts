import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { Client, type Dispatcher } from 'undici';
import type { Relay } from './relay.ts';
import type { UpstreamRequest } from './request-head.ts';

/** The most that is read from a connection at once. */
export const READ_BYTES = 65_536;

/**
 * A connection on which an answer has begun that is too large to be taken whole, for a client that thinks that it has
 * still to ask. What it writes goes nowhere; then it reads what was read before, and the rest. As long as it takes
 * nothing, nothing is read from the core. A piece is read in a turn of the event loop: others are served between two.
 */
export class AnswerBytes extends Duplex {
  readonly #socket: Socket;
  #begun: Buffer | undefined;
  #piece: Buffer | undefined;
  /** Set by its reader: whether all that was read of it has been sent. */
  isSent = (): boolean => false;

  constructor(socket: Socket, begun: Buffer) {
    super();
    this.#socket = socket;
    this.#begun = begun;
  }

  /**
   * The next piece, in a buffer that the caller uses again. It is copied into a buffer that is used again as soon as
   * nobody holds the last piece: V8 collects all garbage each time that new buffers have taken some ten megabytes.
   * @returns whether to go on reading
   */
  receive(piece: Buffer): boolean {
    if (this.readableLength > 0 || !this.isSent()) return this.push(Buffer.from(piece));
    this.#piece ??= Buffer.allocUnsafeSlow(READ_BYTES);
    piece.copy(this.#piece);
    return this.push(this.#piece.subarray(0, piece.length));
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
 * @param timeoutMs for each piece of it
 */
export function streamAnswer(
  bytes: AnswerBytes,
  relay: Relay,
  { method }: Pick<UpstreamRequest, 'method'>,
  timeoutMs: number,
): void {
  const client = new Client('http://core', {
    // undici does not expect to be connected at once.
    connect: (_options, callback) => process.nextTick(callback, null, bytes),
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  });
  bytes.isSent = () => relay.isSent;
  client.dispatch({ method: method as Dispatcher.HttpMethod, path: '/', reset: true }, relay);
  void client.close();
}
