import type { Socket } from 'node:net';
import { buildConnector } from 'undici';
import { Ring } from '../../shared/ring.ts';
import { type Answer, readAnswer } from './answer.ts';
import { AnswerTooLarge, ConnectionLost, CoreTooSlow } from './faults.ts';
import { type UpstreamRequest, writeRequest } from './request.ts';

/** How deep requests may be pipelined: as many answers are lost when the connection breaks. */
const DEPTH = 512;
/** Answers come in order. When the one in front is slow, others had better not queue up behind it. */
const STALLED_AFTER_MS = 50;
const READ_BYTES = 65_536;
/** Of answers that are not all there; more is none that would be kept. */
const MAX_REST_BYTES = 1_048_576;
/** Of an answer that is too large. Behind a longer one nobody should have to wait. */
const MAX_SKIPPED_BYTES = 4_194_304;

interface Asked {
  readonly isHead: boolean;
  /** Until when it is waited for; of performance.now(). */
  readonly deadline: number;
  resolve(answer: Answer): void;
  reject(fault: unknown): void;
}

export interface LineOptions {
  readonly connectTimeoutMs: number;
  readonly keepAliveMs: number;
}

/**
 * One connection to a core that requests share, pipelined (RFC 9112 §9.3.2): the requests of one turn of the event loop,
 * which is to say of one decided batch, leave in one write, and their answers come in a few reads, each into the same
 * piece of memory. Only for what has no body, may be asked for twice and has a small answer; such answers are taken whole,
 * so that none ever waits for its client, and one that nobody wants any more is still taken, for those behind it.
 * All else is for undici, which here cost a fifth of all that the gateway does for a request.
 */
export class SharedLine {
  readonly #url: URL;
  readonly #keepAliveMs: number;
  readonly #connector: ReturnType<typeof buildConnector>;
  readonly #incoming = Buffer.allocUnsafeSlow(READ_BYTES);
  /** Sent or about to be, in this order, and not answered. */
  readonly #asked = new Ring<Asked>(DEPTH);
  #unsent = '';
  #socket: Socket | undefined;
  #isConnecting = false;
  #isClosed = false;
  /** What came of an answer that is not all there. */
  #rest: Buffer | undefined;
  /** Bytes to come of an answer that was too large. */
  #skipped = 0;
  #timer: NodeJS.Timeout | undefined;
  #lastAnswerAt = 0;

  constructor(origin: string, { connectTimeoutMs, keepAliveMs }: LineOptions) {
    this.#url = new URL(origin);
    this.#keepAliveMs = keepAliveMs;
    const onread = { buffer: this.#incoming, callback: (length: number) => this.#read(length) };
    this.#connector = buildConnector({ timeout: connectTimeoutMs, allowH2: false, ...{ onread } });
  }

  /** Whether a request would be answered about as soon as it is sent. */
  get isFree(): boolean {
    if (this.#skipped > 0) return false;
    if (this.#asked.length === 0) return true;
    return !this.#asked.isFull && performance.now() - this.#lastAnswerAt < STALLED_AFTER_MS;
  }

  /**
   * @param deadline of performance.now()
   * @throws {CoreTooSlow} when it is over
   * @throws {AnswerTooLarge} for an answer that is to be streamed
   * @throws whatever ended the connection, where the answer may be had on another one
   */
  ask(request: UpstreamRequest, deadline: number): Promise<Answer> {
    const text = writeRequest(request, this.#url.host);
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    if (this.#asked.length === 0) this.#lastAnswerAt = performance.now();
    this.#asked.push({ isHead: request.method === 'HEAD', deadline, resolve, reject });
    this.#timer ??= this.#wakeAt(deadline);
    if (this.#unsent === '') process.nextTick(() => this.#send());
    this.#unsent += text;
    return promise;
  }

  close(): void {
    this.#isClosed = true;
    this.#end(new ConnectionLost());
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
    // The brackets around an address of IPv6 are the URL's, not its own.
    const hostname = this.#url.hostname.replace(/^\[|\]$/g, '');
    this.#connector({ hostname, host, protocol, port }, (...[fault, socket]) => {
      this.#isConnecting = false;
      if (fault !== null) this.#end(fault);
      else if (this.#isClosed) socket.destroy();
      else this.#use(socket);
    });
  }

  #use(socket: Socket): void {
    this.#socket = socket;
    let fault: Error = new ConnectionLost();
    const lost = () => {
      if (this.#socket === socket) this.#end(fault);
    };
    socket.on('error', (error) => {
      fault = error;
    });
    socket.on('end', lost);
    socket.on('close', lost);
    socket.setTimeout(this.#keepAliveMs);
    socket.on('timeout', () => {
      if (this.#asked.length === 0) lost();
    });
    this.#send();
  }

  /** Called with every piece that comes in; there is one connection at a time, so one place for it. */
  #read(length: number): boolean {
    const piece = this.#incoming.subarray(0, length);
    try {
      this.#take(this.#rest === undefined ? piece : Buffer.concat([this.#rest, piece]));
    } catch (fault) {
      // Whose answer it was is told what was wrong with it; those behind it lost theirs with the connection.
      this.#asked.shift()?.reject(fault);
      this.#end(new ConnectionLost());
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
    // The place that it was read into is used again; what was put together is nobody else's.
    this.#rest = at < bytes.length && this.#socket !== undefined ? Buffer.from(bytes.subarray(at)) : undefined;
  }

  /** @returns where the next one begins, if this one is all there */
  #takeAnswer(bytes: Buffer, at: number): number | undefined {
    const { first } = this.#asked;
    // Nobody asked for it: where answers begin and end is not certain any more.
    if (first === undefined) throw new ConnectionLost();
    try {
      const framed = readAnswer(bytes, at, first.isHead);
      if (framed === undefined) return undefined;
      this.#answered().resolve(framed.answer);
      if (framed.isLast) this.#end(new ConnectionLost());
      return framed.isLast ? bytes.length : framed.end;
    } catch (fault) {
      const length = fault instanceof AnswerTooLarge && fault.end !== undefined ? fault.end - at : undefined;
      if (length === undefined || length > MAX_SKIPPED_BYTES) throw fault;
      this.#answered().reject(fault);
      this.#skipped = length;
      return this.#skip(bytes, at);
    }
  }

  #answered(): Asked {
    this.#lastAnswerAt = performance.now();
    return this.#asked.shift() as Asked;
  }

  #skip(bytes: Buffer, at: number): number {
    const skipped = Math.min(this.#skipped, bytes.length - at);
    this.#skipped -= skipped;
    return at + skipped;
  }

  #wakeAt(deadline: number): NodeJS.Timeout {
    return setTimeout(() => this.#giveUp(), deadline - performance.now());
  }

  /** Requests are asked in the order of their deadlines: it is those in front whose time is over. */
  #giveUp(): void {
    const now = performance.now();
    for (const { deadline, reject } of this.#asked) if (deadline <= now) reject(new CoreTooSlow());
    const next = [...this.#asked].find(({ deadline }) => deadline > now);
    this.#timer = next && this.#wakeAt(next.deadline);
    // With nobody left who waits, the answers that are owed would only be in the way.
    if (next === undefined && this.#asked.length > 0) this.#end(new ConnectionLost());
  }

  /** Lets go of the connection, and of all that was asked on it. */
  #end(fault: unknown): void {
    const socket = this.#socket;
    this.#socket = undefined;
    this.#unsent = '';
    this.#rest = undefined;
    this.#skipped = 0;
    socket?.destroy();
    for (let asked = this.#asked.shift(); asked !== undefined; asked = this.#asked.shift()) asked.reject(fault);
  }
}
