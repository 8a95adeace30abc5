import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Finds request lines with more than one space between their parts. Node's parser skips such spaces and another parser
 * may not (RFC 9112 §3), and it does not say what it skipped. But the length of a head does: if a read ends where a
 * head with single spaces ends, with its body or without, all is well, and that is how requests come. Only otherwise
 * is the line looked up in what was read.
 */
export class RequestLines {
  readonly #socket: Socket;
  readonly #currentRead: () => Buffer;
  /** Where the next head begins, in bytes since the connection began; NaN behind a body of unknown length. */
  #start = 0;
  /** What was read last, and up to where. */
  #read: { readonly bytes: Buffer; readonly end: number } | undefined;

  /** @param currentRead returns a copy of what the parser is reading */
  constructor(socket: Socket, currentRead: () => Buffer) {
    this.#socket = socket;
    this.#currentRead = currentRead;
  }

  /** Called for every head, in their order. @returns whether its line has too many spaces */
  hasTwoSpaces(request: IncomingMessage): boolean {
    const end = this.#socket.bytesRead - this.#socket.readableLength;
    const body = bodyLength(request);
    const endOfHead = this.#start + usualLength(request);
    if (end === endOfHead || end === endOfHead + body) {
      this.#start = endOfHead + body;
      return false;
    }
    return this.#lookUp(request, end, body);
  }

  #lookUp({ method, url }: IncomingMessage, end: number, body: number): boolean {
    if (this.#read?.end !== end) this.#read = { bytes: this.#currentRead(), end };
    const { bytes } = this.#read;
    const beginOfRead = end - bytes.length;
    // Behind a body of unknown length, a head usually comes with a read of its own.
    const from = Number.isNaN(this.#start) ? 0 : this.#start - beginOfRead;
    // Otherwise the line came with an earlier read.
    const endOfHead = from < 0 ? -1 : bytes.indexOf(END_OF_HEAD, from);
    this.#start = endOfHead === -1 ? Number.NaN : beginOfRead + endOfHead + END_OF_HEAD.length + body;
    if (from < 0) return false;
    const line = bytes.toString('latin1', from, bytes.indexOf('\n', from)).trimStart();
    return line.startsWith(`${method}  `) || line.startsWith(`${method} ${url}  `);
  }
}

const END_OF_HEAD = '\r\n\r\n';
const AROUND_TARGET = '  HTTP/1.1\r\n'.length;

/** Of a head in bytes, with one space behind each colon. */
function usualLength({ method = '', url = '', rawHeaders }: IncomingMessage): number {
  let length = method.length + url.length + AROUND_TARGET + 2 * rawHeaders.length + '\r\n'.length;
  for (const text of rawHeaders) length += text.length;
  return length;
}

/** In bytes; NaN for a body in chunks. */
const bodyLength = ({ headers }: IncomingMessage): number =>
  headers['transfer-encoding'] === undefined ? Number(headers['content-length'] ?? 0) : Number.NaN;
