import type { Socket } from 'node:net';

/**
 * Back-pressure on pipelined requests (RFC 9112 §9.3.2). Node parses all requests of one read, up to 64 kB, before
 * anything else runs. Here the parser stops after the request that fills the queue. The rest goes back into the socket
 * and is read again once answers have been sent.
 */

/** Bytes of held requests on all connections together. Above this limit they are dropped. */
const MAX_HELD_BYTES = 33_554_432;

/** llhttp's HPE_PAUSED: returned by a callback, it stops the parser after the last head. */
const PAUSED = 21;
const NOTHING = Buffer.alloc(0);

/** Parts of Node's server that are missing in its types. */
interface Parser {
  onIncoming(this: unknown, ...told: unknown[]): number;
  resume(): void;
}
/**
 * While `_paused` is set, nothing is read. Node uses the same flag for clients that do not read their answers, so Node
 * may clear it early. Then some requests are read earlier than necessary.
 */
type ParsedSocket = Socket & { _paused?: boolean; readonly parser?: Parser | null };

/** The error that Node reports when the parser was stopped. */
export interface ParserStopped extends NodeJS.ErrnoException {
  readonly rawPacket: Buffer;
  readonly bytesParsed: number;
}

export const isParserStopped = (fault: NodeJS.ErrnoException): fault is ParserStopped => fault.code === 'HPE_PAUSED';

interface Stopped {
  /** Bytes of held requests. */
  bytes: number;
  isResuming: boolean;
}

export class Pipelining {
  readonly #stopped = new Map<Socket, Stopped>();
  #bytes = 0;

  /**
   * Stops the parser of a new connection when its queue is full.
   * @param isFull called after every head, once its request has been passed on
   */
  watch(socket: ParsedSocket, isFull: () => boolean): void {
    const { parser } = socket;
    if (parser == null) return;
    const { onIncoming } = parser;
    parser.onIncoming = (...told) => {
      const result = onIncoming.apply(parser, told);
      if (result !== 0 || !isFull()) return result;
      // Node resumes a socket by itself once answers have been sent.
      this.forget(socket);
      this.#stopped.set(socket, { bytes: 0, isResuming: false });
      socket._paused = true;
      socket.pause();
      return PAUSED;
    };
  }

  /**
   * Keeps what the parser has not read.
   * @returns false if that is too much; then nothing is kept
   */
  keep(socket: Socket, { rawPacket, bytesParsed }: ParserStopped): boolean {
    const stopped = this.#stopped.get(socket);
    const rest = rawPacket.subarray(bytesParsed);
    if (stopped === undefined || this.#bytes + rest.length > MAX_HELD_BYTES) return false;
    this.#bytes += rest.length;
    stopped.bytes = rest.length;
    // The rest is read first, no matter who resumes the socket.
    if (rest.length > 0) socket.unshift(rest);
    return true;
  }

  /** Resumes a stopped connection in the next turn of the event loop, so that connections take turns. */
  resume(socket: ParsedSocket): void {
    const stopped = this.#stopped.get(socket);
    if (stopped === undefined || stopped.isResuming) return;
    stopped.isResuming = true;
    setImmediate(() => {
      this.forget(socket);
      // After the last answer nothing more is read. If the client does not read its answers, Node resumes the socket.
      if (!socket.writable || socket.writableNeedDrain) return;
      socket._paused = false;
      socket.parser?.resume();
      // The parser must finish the request at which it stopped, even if nothing follows.
      socket.emit('data', NOTHING);
      socket.resume();
    });
  }

  forget(socket: Socket): void {
    this.#bytes -= this.#stopped.get(socket)?.bytes ?? 0;
    this.#stopped.delete(socket);
  }
}
