import type { Socket } from 'node:net';

/**
 * Back-pressure on pipelined requests (RFC 9112 §9.3.2). Node parses all requests that one read brought, up to 64 kB of them,
 * before anything else happens. Here the parser stops behind the request that is one too many; what is behind that goes back
 * into the socket, and is read again once answers have left.
 */

/** Bytes of requests that are held back on all connections together. Past it, they are dropped. */
const MAX_HELD_BYTES = 33_554_432;

/** llhttp's HPE_PAUSED: returned by a callback, it ends the parser's run behind the head that was read last. */
const PAUSED = 21;
const NOTHING = Buffer.alloc(0);

/**
 * Parts of Node's server that are not in its types. While `_paused` is set, nothing is read; it is Node's own flag for clients
 * that do not read their answers, so Node may clear it, and then some requests are read earlier than they need be.
 */
interface Parser {
  onIncoming(this: unknown, ...told: unknown[]): number;
  resume(): void;
}
type ParsedSocket = Socket & { _paused?: boolean; readonly parser?: Parser | null };

/** The fault that Node reports where the parser has been stopped. */
export interface ParserStopped extends NodeJS.ErrnoException {
  readonly rawPacket: Buffer;
  readonly bytesParsed: number;
}

export const isParserStopped = (fault: NodeJS.ErrnoException): fault is ParserStopped => fault.code === 'HPE_PAUSED';

interface Stopped {
  /** Of requests that are held back. */
  bytes: number;
  isResuming: boolean;
}

export class Pipelining {
  readonly #stopped = new Map<Socket, Stopped>();
  #bytes = 0;

  /**
   * Stops the parser of a new connection whenever that is full.
   * @param isFull asked after every head that was read, once the request has been handed on
   */
  watch(socket: ParsedSocket, isFull: () => boolean): void {
    const { parser } = socket;
    if (parser == null) return;
    const { onIncoming } = parser;
    parser.onIncoming = (...told) => {
      const result = onIncoming.apply(parser, told);
      if (result !== 0 || !isFull()) return result;
      // Node resumes a socket by itself once answers have left.
      this.forget(socket);
      this.#stopped.set(socket, { bytes: 0, isResuming: false });
      socket._paused = true;
      socket.pause();
      return PAUSED;
    };
  }

  /**
   * Keeps what the parser has not read.
   * @returns false where that is too much: then nothing is kept
   */
  keep(socket: Socket, { rawPacket, bytesParsed }: ParserStopped): boolean {
    const stopped = this.#stopped.get(socket);
    const rest = rawPacket.subarray(bytesParsed);
    if (stopped === undefined || this.#bytes + rest.length > MAX_HELD_BYTES) return false;
    this.#bytes += rest.length;
    stopped.bytes = rest.length;
    // Whoever resumes the socket, this comes first.
    if (rest.length > 0) socket.unshift(rest);
    return true;
  }

  /** Goes on reading, if it was stopped: in the next turn of the event loop, so that connections take turns. */
  resume(socket: ParsedSocket): void {
    const stopped = this.#stopped.get(socket);
    if (stopped === undefined || stopped.isResuming) return;
    stopped.isResuming = true;
    setImmediate(() => {
      this.forget(socket);
      // What comes behind the last answer gets none; a client that does not read its answers is Node's to resume.
      if (!socket.writable || socket.writableNeedDrain) return;
      socket._paused = false;
      socket.parser?.resume();
      // The parser ends the request at which it was stopped, also where nothing comes behind it.
      socket.emit('data', NOTHING);
      socket.resume();
    });
  }

  forget(socket: Socket): void {
    this.#bytes -= this.#stopped.get(socket)?.bytes ?? 0;
    this.#stopped.delete(socket);
  }
}
