import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { Client, type Dispatcher } from 'undici';
import type { Relay } from './relay.ts';
import type { UpstreamRequest } from './request-head.ts';

/** The most that is read from a connection at once. */
export const READ_BYTES = 65_536;

/**
 * Presents a core's connection, on which a large answer has begun, to undici. undici first writes a request, which is
 * dropped: the core has one. It then reads the part of the answer that is here, and the rest as it comes. While undici
 * takes nothing, nothing is read from the core. Each turn of the event loop reads one piece, so that other requests are
 * served in between.
 */
export class AnsweredSocket extends Duplex {
  readonly #socket: Socket;
  #buffered: Buffer | undefined;
  #piece: Buffer | undefined;
  /** Whether everything that was read has been sent to the client. Set by the reader. */
  isSent = (): boolean => false;

  constructor(socket: Socket, buffered: Buffer) {
    super();
    this.#socket = socket;
    this.#buffered = buffered;
  }

  /**
   * Passes on the next piece. The caller reuses its buffer, so the piece is copied. The copy's buffer is reused too, once
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
    if (this.#buffered === undefined) setImmediate(() => this.#socket.resume());
  }

  override _write(_request: Buffer, _encoding: BufferEncoding, callback: () => void): void {
    if (this.#buffered !== undefined) this.push(this.#buffered);
    this.#buffered = undefined;
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
  socket: AnsweredSocket,
  relay: Relay,
  { method }: Pick<UpstreamRequest, 'method'>,
  timeoutMs: number,
): void {
  const client = new Client('http://core', {
    // undici does not expect to be connected at once.
    connect: (_options, callback) => process.nextTick(callback, null, socket),
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  });
  socket.isSent = () => relay.isSent;
  client.dispatch({ method: method as Dispatcher.HttpMethod, path: '/', reset: true }, relay);
  void client.close();
}
