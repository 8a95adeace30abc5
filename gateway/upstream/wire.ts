import type { Socket } from 'node:net';
import Denque from 'denque';
import { type Answer, type AnswerHead, AnswerTooLarge, BodyReader, readAnswer } from './answer.ts';
import { connectorTo } from './connect.ts';
import type { Connect } from './core-addresses.ts';
import { ConnectionLost, WrongAnswer } from './faults.ts';
import { type UpstreamRequest, writeRequest } from './headers.ts';

/** The maximum number of bytes read from a connection at once. */
const READ_BYTES = 65_536;
/** The maximum number of unanswered requests on one connection, so that a fault delays no more requests than this. */
export const MAX_DEPTH = 128;
/** The maximum number of bytes kept of an incomplete response. */
const MAX_REST_BYTES = 1_048_576;
/**
 * Oversized responses up to this size are read and discarded. For a longer one the connection is closed, so that no
 * request waits behind it.
 */
const MAX_SKIPPED_BYTES = 4_194_304;
/** A wire's responses count as flowing until the next one has been due for this long. */
export const FLOWING_MS = 10;
/** An idle connection is closed this long before the core would close it. */
const KEEP_ALIVE_MARGIN_MS = 1_000;

/**
 * A request on a wire. The wire calls `answered` or `failed` once. For a streamed response, it calls `streamed`
 * instead, then `piece` for each piece, or `failed`.
 */
export interface PendingRequest {
  readonly request: UpstreamRequest;
  /** The X-Request-Id of this attempt, which its response repeats. */
  readonly id: string;
  /** When it was handed to a wire, by performance.now(). */
  readonly sentAt: number;
  /** False once nobody waits for the response. A client that has disconnected still counts. */
  readonly isWanted: boolean;
  /** Whether it has a wire of its own. Only then is a large response streamed. */
  readonly isAlone: boolean;
  /**
   * @param answer after a 101, the connection belongs to a WebSocket
   * @param now when the response was read, by performance.now()
   * @param blocker the request, perhaps this one, whose late response held up others until now
   */
  answered(answer: Answer, now: number, blocker: PendingRequest | undefined): void;
  /** Called with the head of a response that is too large to be read as a whole. Its body follows in pieces. */
  streamed(head: AnswerHead, now: number): void;
  /**
   * Called with a piece of that body. The parts stay unchanged, and the connection is not read, until the wire's `goOn`
   * is called, so that the client sets the pace. Over TLS, more pieces of what was already read may follow.
   * @param isEnd whether this is the last piece
   */
  piece(parts: readonly Buffer[], isEnd: boolean): void;
  failed(fault: unknown): void;
}

export interface WireOptions {
  /** The destination, if it differs from the URL. */
  readonly connect?: Connect;
  readonly connectTimeoutMs: number;
  readonly keepAliveMs: number;
  /**
   * Whether even the first response on a connection must carry the X-Request-Id of its attempt. Required for pipelining.
   * Once one has carried it, all must.
   */
  readonly needsEcho: boolean;
}

/**
 * A connection to a core, pipelined (RFC 9112 §9.3.2) if it is shared. It connects on first use and reconnects after a
 * loss. The requests in one turn of the event loop are sent in one write. Small responses are read as a whole, so none
 * waits for a slow client. A response belongs to the oldest request only if it carries that request's id.
 */
export class Wire {
  readonly #url: URL;
  readonly #options: WireOptions;
  readonly #open: ReturnType<typeof connectorTo>;
  readonly #incoming = Buffer.allocUnsafeSlow(READ_BYTES);
  /** Unanswered requests, in the order of sending. */
  readonly #pending = new Denque<PendingRequest>();
  #unsent = '';
  #socket: Socket | undefined;
  #isConnecting = false;
  #isClosed = false;
  #isRetired = false;
  #needsEcho = false;
  /** The bytes of an incomplete response. */
  #rest: Buffer | undefined;
  #streamed: Streamed | undefined;
  /** The bytes of an oversized response that are still to be skipped. */
  #skipped = 0;
  /** When the oldest request became the oldest. */
  #frontSince = 0;
  /** The request whose late response held up others until the current read. */
  #blocker: PendingRequest | undefined;
  #readAt = 0;

  constructor(url: string, options: WireOptions) {
    this.#url = new URL(url);
    this.#options = options;
    this.#open = connectorTo(this.#url, options, this.#incoming, (length) => this.#read(length));
  }

  /** The number of unanswered requests. */
  get depth(): number {
    return this.#pending.length;
  }

  /** How long the next response has been due, in ms; 0 if none is due. */
  stalledMs(now: number): number {
    return this.#pending.length === 0 && this.#skipped === 0 ? 0 : now - this.#frontSince;
  }

  /** The request whose response is due. Undefined while the rest of an oversized response is skipped. */
  get front(): PendingRequest | undefined {
    return this.#skipped > 0 ? undefined : this.#pending.peekFront();
  }

  /** The requests behind the one whose response is due. */
  get blocked(): PendingRequest[] {
    return this.#pending.toArray().slice(this.#skipped > 0 ? 0 : 1);
  }

  /** Forgets a request that was sent again elsewhere. Its response still arrives here and is dropped. */
  forget(pending: PendingRequest): void {
    const at = this.#pending.toArray().indexOf(pending);
    if (at === -1) return;
    this.#pending.removeOne(at);
    this.#pending.splice(at, 0, placeholderOf(pending));
  }

  /** Closes the socket once nobody waits for a response on it. No more requests may be sent. */
  retire(): void {
    this.#isRetired = true;
    if (this.#isUnwanted) this.end();
  }

  /**
   * Sends a request together with the others of this turn.
   * @throws {Error} for a header that cannot be sent
   * @throws {RangeError} if MAX_DEPTH requests are unanswered
   */
  send(pending: PendingRequest, now: number): void {
    const text = writeRequest(pending.request, pending.id, this.#url.host);
    if (this.#pending.length === MAX_DEPTH) throw new RangeError(`${MAX_DEPTH} requests are unanswered.`);
    this.#pending.push(pending);
    if (this.#pending.length === 1 && this.#skipped === 0) this.#frontSince = now;
    if (this.#unsent === '') process.nextTick(() => this.#send());
    this.#unsent += text;
  }

  /** Closes the socket if nobody waits for its remaining responses. */
  endUnwanted(): void {
    if (this.#pending.length > 0 && this.#isUnwanted) this.end();
  }

  get #isUnwanted(): boolean {
    for (let at = 0; at < this.#pending.length; at++) if (this.#pending.peekAt(at)?.isWanted) return false;
    return true;
  }

  /** Closes the socket. Unanswered requests fail with `fault`; the next request gets a new socket. */
  end(fault: unknown = new ConnectionLost()): void {
    const socket = this.#socket;
    this.#socket = undefined;
    this.#unsent = '';
    this.#rest = undefined;
    this.#skipped = 0;
    const streamed = this.#streamed;
    this.#streamed = undefined;
    socket?.destroy();
    streamed?.pending.failed(fault);
    for (let { length } = this.#pending; length > 0; length--) this.#pending.shift()?.failed(fault);
  }

  /** Closes the socket permanently. */
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
    this.#open((...[fault, socket]) => {
      this.#isConnecting = false;
      if (fault !== null) this.end(fault);
      else if (this.#isClosed || this.#pending.length === 0) socket.destroy();
      else this.#use(socket);
    });
  }

  #use(socket: Socket): void {
    this.#socket = socket;
    this.#needsEcho = this.#options.needsEcho;
    const lost = (fault?: Error) => {
      if (this.#socket !== socket) return;
      this.end(fault);
    };
    // The 'error' event is emitted one phase of the event loop before 'close'. No request may be sent in between.
    socket.on('error', lost);
    socket.on('end', () => lost());
    socket.on('close', () => lost());
    socket.setTimeout(this.#options.keepAliveMs);
    socket.on('timeout', () => {
      if (this.#pending.length === 0 && this.#streamed === undefined) lost();
    });
    this.#send();
  }

  /** Called with the length of each piece of data in `#incoming`, which only one socket uses at a time. */
  #read(length: number): boolean {
    const piece = this.#incoming.subarray(0, length);
    this.#readAt = performance.now();
    this.#blocker = undefined;
    try {
      if (this.#streamed !== undefined) this.#pass(piece, 0);
      else this.#take(this.#rest === undefined ? piece : Buffer.concat([this.#rest, piece]));
    } catch (fault) {
      // The request whose response is being read gets the fault. Those behind it have only lost their connection.
      const first = this.#streamed?.pending ?? this.#pending.shift();
      this.#streamed = undefined;
      this.end();
      first?.failed(fault);
    }
    return this.#streamed === undefined;
  }

  #take(bytes: Buffer): void {
    let at = this.#skip(bytes, 0);
    while (at < bytes.length) {
      const next = this.#takeAnswer(bytes, at);
      if (next === undefined) break;
      at = next;
    }
    if (bytes.length - at > MAX_REST_BYTES) throw new ConnectionLost();
    // The read buffer is reused.
    this.#rest = at < bytes.length && this.#socket !== undefined ? Buffer.from(bytes.subarray(at)) : undefined;
  }

  /** @returns where the next response begins; undefined while this one is incomplete */
  #takeAnswer(bytes: Buffer, at: number): number | undefined {
    const first = this.#pending.peekFront();
    // No request is waiting, so it is no longer certain where responses begin and end.
    if (first === undefined) throw new ConnectionLost();
    try {
      const framed = readAnswer(bytes, at, first.request.method === 'HEAD');
      if (framed === undefined) return undefined;
      this.#check(framed.answer, first);
      if (this.#pending.length > 1 && this.#readAt - this.#frontSince >= FLOWING_MS) this.#blocker = first;
      const pending = this.#shift();
      if (framed.answer.isLast || (this.#isRetired && this.#isUnwanted)) this.end();
      else if (this.#pending.length === 0) this.#idle(framed.answer);
      pending.answered(framed.answer, this.#readAt, this.#blocker);
      return this.#socket === undefined ? bytes.length : framed.end;
    } catch (fault) {
      if (!(fault instanceof AnswerTooLarge)) throw fault;
      if (first.isAlone && this.#socket !== undefined) {
        this.#check(fault.head, first);
        this.#streamed = {
          pending: this.#shift(),
          head: fault.head,
          body: new BodyReader(fault.head.length),
          hasStrayBytes: false,
        };
        first.streamed(fault.head, this.#readAt);
        if (this.#streamed !== undefined) this.#pass(bytes, fault.from);
        return bytes.length;
      }
      const rest = fault.from + (fault.head.length ?? Number.POSITIVE_INFINITY) - at;
      if (rest > MAX_SKIPPED_BYTES) throw fault;
      this.#skipped = rest;
      this.#shift().failed(fault);
      return this.#socket === undefined ? bytes.length : this.#skip(bytes, at);
    }
  }

  /** Forwards a piece of a streamed response. */
  #pass(bytes: Buffer, from: number): void {
    const streamed = this.#streamed as Streamed;
    const { pending, body } = streamed;
    const parts: Buffer[] = [];
    // Over TLS, Node passes on whatever it has decrypted, even after a pause, and reuses the buffer for it.
    const kept = this.#url.protocol === 'https:' ? Buffer.from(bytes) : bytes;
    streamed.hasStrayBytes = body.read(kept, from, (part) => parts.push(part)) < bytes.length;
    if (parts.length > 0 || body.isComplete) pending.piece(parts, body.isComplete);
    else this.goOn();
  }

  /** Resumes reading after a piece has been sent. After the last one, the wire is free for another request. */
  goOn(): void {
    if (this.#streamed === undefined) return;
    const { head, body, hasStrayBytes } = this.#streamed;
    const socket = this.#socket as Socket;
    if (body.isComplete) this.#streamed = undefined;
    if (body.isComplete && (head.isLast || hasStrayBytes)) this.end();
    else if (body.isComplete) this.#idle(head);
    // Resuming in the next turn of the event loop lets other requests be served in between.
    setImmediate(() => socket.resume());
  }

  /** Closes the connection if the core may close it soon, or if it is not certain where the next response begins. */
  #idle({ keepAliveMs = Number.POSITIVE_INFINITY }: AnswerHead): void {
    const socket = this.#socket as Socket;
    const ms = Math.min(this.#options.keepAliveMs, keepAliveMs - KEEP_ALIVE_MARGIN_MS);
    // A response can arrive before its whole request has been sent.
    if (socket.writableLength > 0 || ms <= 0) this.end();
    else if (socket.timeout !== ms) socket.setTimeout(ms);
  }

  #check({ requestId }: AnswerHead, { id }: PendingRequest): void {
    if (requestId === id) this.#needsEcho = true;
    else if (requestId !== undefined || this.#needsEcho) throw new WrongAnswer();
  }

  #shift(): PendingRequest {
    this.#frontSince = this.#readAt;
    return this.#pending.shift() as PendingRequest;
  }

  #skip(bytes: Buffer, at: number): number {
    const skipped = Math.min(this.#skipped, bytes.length - at);
    this.#skipped -= skipped;
    return at + skipped;
  }
}

interface Streamed {
  readonly pending: PendingRequest;
  readonly head: AnswerHead;
  readonly body: BodyReader;
  /** Whether unsolicited bytes follow the response. */
  hasStrayBytes: boolean;
}

/** A placeholder for a request that was sent again elsewhere. */
const placeholderOf = ({ request, id, sentAt }: PendingRequest): PendingRequest => ({
  request,
  id,
  sentAt,
  isWanted: false,
  isAlone: false,
  answered() {},
  streamed() {},
  piece() {},
  failed() {},
});
