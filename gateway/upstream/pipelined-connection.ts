import type { Socket } from 'node:net';
import { buildConnector } from 'undici';
import { Ring } from '../../shared/ring.ts';
import { type Answer, readAnswer } from './answer.ts';
import { AnswerTooLarge, ConnectionLost, WrongAnswer } from './faults.ts';
import { requestIdOf } from './headers.ts';
import { type UpstreamRequest, writeRequest } from './request.ts';

/** Requests on one connection at most: the most that its fault can delay. */
export const MAX_DEPTH = 128;
const READ_BYTES = 65_536;
/** Of an incomplete answer. A longer one would not be kept. */
const MAX_REST_BYTES = 1_048_576;
/** Of an answer that is too large. Nobody waits behind a longer one. */
const MAX_SKIPPED_BYTES = 4_194_304;

/** A request on a connection. The connection calls `answered` or `failed`, once. */
export interface Asked {
  readonly request: UpstreamRequest;
  /** False once nobody waits for the answer. */
  readonly isWanted: boolean;
  /** @param now when it was read; of performance.now() */
  answered(answer: Answer, now: number): void;
  failed(fault: unknown): void;
}

export interface ConnectionOptions {
  readonly connectTimeoutMs: number;
  readonly keepAliveMs: number;
  /** Whether an answer without the X-Request-Id of its request ends the connection. Required where requests are pipelined. */
  readonly needsEcho: boolean;
}

/**
 * A connection to a core for small reads, pipelined (RFC 9112 §9.3.2). It connects when it is first used and again when it
 * was lost. The requests of one turn of the event loop leave in one write. Answers are read whole, so none waits for its
 * client. An answer belongs to the request in front only if it carries that request's id.
 */
export class PipelinedConnection {
  readonly #url: URL;
  readonly #options: ConnectionOptions;
  readonly #connector: ReturnType<typeof buildConnector>;
  readonly #incoming = Buffer.allocUnsafeSlow(READ_BYTES);
  /** Unanswered, in the order in which they were sent. */
  readonly #asked = new Ring<Asked>(MAX_DEPTH);
  #unsent = '';
  #socket: Socket | undefined;
  #isConnecting = false;
  #isClosed = false;
  /** The bytes of an incomplete answer. */
  #rest: Buffer | undefined;
  /** Bytes to come of an answer that was too large. */
  #skipped = 0;
  /** Since when the request in front has been in front. */
  #frontSince = 0;
  /** When something came last. */
  #readAt = 0;

  constructor(origin: string, options: ConnectionOptions) {
    this.#url = new URL(origin);
    this.#options = options;
    const onread = { buffer: this.#incoming, callback: (length: number) => this.#read(length) };
    this.#connector = buildConnector({ timeout: options.connectTimeoutMs, allowH2: false, ...{ onread } });
  }

  /** Requests without an answer. */
  get depth(): number {
    return this.#asked.length;
  }

  /** How long the answer in front has been due, in ms: 0 where none is. */
  stalledMs(now: number): number {
    return this.#asked.length === 0 && this.#skipped === 0 ? 0 : now - this.#frontSince;
  }

  /** The request whose answer is due. While the rest of a large answer comes, it is nobody's. */
  get front(): Asked | undefined {
    return this.#skipped > 0 ? undefined : this.#asked.first;
  }

  /** Requests behind the answer that is due. */
  get blocked(): Asked[] {
    return [...this.#asked].slice(this.#skipped > 0 ? 0 : 1);
  }

  /**
   * Sends a request with those of the same turn.
   * @throws {Error} for a header that cannot be sent
   * @throws {RangeError} where MAX_DEPTH are unanswered
   */
  ask(asked: Asked, now: number): void {
    const text = writeRequest(asked.request, this.#url.host);
    this.#asked.push(asked);
    if (this.#asked.length === 1 && this.#skipped === 0) this.#frontSince = now;
    if (this.#unsent === '') process.nextTick(() => this.#send());
    this.#unsent += text;
  }

  /** Ends the socket where nobody waits for what it still owes. */
  endUnwanted(): void {
    if (this.#asked.length === 0) return;
    for (const { isWanted } of this.#asked) if (isWanted) return;
    this.end();
  }

  /** Ends the socket. Whoever waits is told {ConnectionLost}; the next request gets a new socket. */
  end(fault: unknown = new ConnectionLost()): void {
    const socket = this.#socket;
    this.#socket = undefined;
    this.#unsent = '';
    this.#rest = undefined;
    this.#skipped = 0;
    socket?.destroy();
    for (let { length } = this.#asked; length > 0; length--) this.#asked.shift()?.failed(fault);
  }

  /** Ends the socket for good. */
  close(): void {
    this.#isClosed = true;
    this.end();
  }

  #send(): void {
    if (this.#unsent === '') return;
    if (this.#socket === undefined) {
      this.#connect();
      return;
    }
    this.#socket.write(this.#unsent, 'latin1');
    this.#unsent = '';
  }

  #connect(): void {
    if (this.#isConnecting) return;
    this.#isConnecting = true;
    const { host, protocol, port } = this.#url;
    // The brackets around an IPv6 address belong to the URL.
    const hostname = this.#url.hostname.replace(/^\[|\]$/g, '');
    this.#connector({ hostname, host, protocol, port }, (...[fault, socket]) => {
      this.#isConnecting = false;
      if (fault !== null) this.end(fault);
      else if (this.#isClosed || this.#asked.length === 0) socket.destroy();
      else this.#use(socket);
    });
  }

  #use(socket: Socket): void {
    this.#socket = socket;
    let fault: Error = new ConnectionLost();
    const lost = () => {
      if (this.#socket === socket) this.end(fault);
    };
    socket.on('error', (error) => {
      fault = error;
    });
    socket.on('end', lost);
    socket.on('close', lost);
    socket.setTimeout(this.#options.keepAliveMs);
    socket.on('timeout', () => {
      if (this.#asked.length === 0) lost();
    });
    this.#send();
  }

  /** Called with every piece that comes in. One socket at a time uses the buffer. */
  #read(length: number): boolean {
    const piece = this.#incoming.subarray(0, length);
    this.#readAt = performance.now();
    try {
      this.#take(this.#rest === undefined ? piece : Buffer.concat([this.#rest, piece]));
    } catch (fault) {
      // The request in front is told what was wrong. Those behind it lost only their connection.
      const first = this.#asked.shift();
      this.end();
      first?.failed(fault);
    }
    return true;
  }

  #take(bytes: Buffer): void {
    let at = this.#skip(bytes, 0);
    while (at < bytes.length) {
      const next = this.#takeAnswer(bytes, at);
      if (next === undefined) break;
      at = next;
    }
    if (bytes.length - at > MAX_REST_BYTES) throw new ConnectionLost();
    // The read buffer is used again.
    this.#rest = at < bytes.length && this.#socket !== undefined ? Buffer.from(bytes.subarray(at)) : undefined;
  }

  /** @returns where the next answer begins; undefined while this one is incomplete */
  #takeAnswer(bytes: Buffer, at: number): number | undefined {
    const { first } = this.#asked;
    // Nothing was asked: it is not certain any more where answers begin and end.
    if (first === undefined) throw new ConnectionLost();
    try {
      const framed = readAnswer(bytes, at, first.request.method === 'HEAD');
      if (framed === undefined) return undefined;
      this.#check(framed.answer, first.request);
      const asked = this.#shift();
      const hasStrayBytes = this.#asked.length === 0 && framed.end < bytes.length;
      if (framed.isLast || hasStrayBytes) this.end();
      asked.answered(framed.answer, this.#readAt);
      return this.#socket === undefined ? bytes.length : framed.end;
    } catch (fault) {
      const length = fault instanceof AnswerTooLarge && fault.end !== undefined ? fault.end - at : undefined;
      if (length === undefined || length > MAX_SKIPPED_BYTES) throw fault;
      this.#skipped = length;
      this.#shift().failed(fault);
      return this.#socket === undefined ? bytes.length : this.#skip(bytes, at);
    }
  }

  #check({ headers }: Answer, { id }: UpstreamRequest): void {
    const echoed = requestIdOf(headers);
    if (echoed === id || (echoed === undefined && !this.#options.needsEcho)) return;
    throw new WrongAnswer();
  }

  #shift(): Asked {
    this.#frontSince = this.#readAt;
    return this.#asked.shift() as Asked;
  }

  #skip(bytes: Buffer, at: number): number {
    const skipped = Math.min(this.#skipped, bytes.length - at);
    this.#skipped -= skipped;
    return at + skipped;
  }
}
