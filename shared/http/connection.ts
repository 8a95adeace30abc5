import type { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { takeOut } from '../lists.ts';
import { breakBody } from './body.ts';
import { type ErrorCode, HttpError, methodNotAllowed } from './errors.ts';
import { http } from './node-http.ts';
import { type Fault, RequestBytes } from './request-bytes.ts';
import { type BrokenRequest, FAULT } from './request-head.ts';

/** Parts of Node's server that are missing in its types. */
interface Parser {
  /** The request that is being read, or the last one. */
  readonly incoming: Upgradable | null;
  onIncoming(request: Upgradable, keepAlive: boolean): number;
  /** Returns how many bytes it has read. */
  execute(bytes: Buffer): number | Fault;
}
type Upgradable = IncomingMessage & { upgrade?: boolean };
/** Node sets `_paused` while too much of the answers is unsent. Its parser accepts nothing then. */
type ParsedSocket = Socket & { readonly _paused?: boolean; readonly parser?: Parser | null };

const CONNECT: Fault = { code: 'CONNECT' };
/** Node reports no error behind an upgrade that was ignored, but its parser reads on no more. */
const UNREPORTED: Fault = { code: 'HPE_UNREPORTED' };
/** OpenSSL's code for a request without TLS instead of a handshake. */
export const PLAIN_HTTP = 'ERR_SSL_HTTP_REQUEST';
/** What llhttp says of a version that is one, and not ours. All else that is wrong behind HTTP/ is bad syntax. */
const OTHER_VERSION = 'Invalid HTTP version';
/** Everything else is an invalid request. */
const ERRORS: Readonly<Record<string, readonly [code: ErrorCode, message?: string]>> = {
  HPE_HEADER_OVERFLOW: ['headers_too_large'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['payload_too_large'],
  MANY_CHUNKS: ['payload_too_large', 'The request body has too many small chunks.'],
  ERR_HTTP_REQUEST_TIMEOUT: ['request_timeout'],
  [PLAIN_HTTP]: ['invalid_request', 'This port speaks TLS: the URL begins with https://.'],
};

function errorOf({ code = '', reason }: Fault): HttpError {
  // A request to open a tunnel, which no server here does.
  if (code === 'CONNECT') return methodNotAllowed('GET, HEAD, POST');
  if (reason === OTHER_VERSION) return new HttpError('http_version_not_supported', undefined, { cause: code });
  const [answered, message] = ERRORS[code] ?? ['invalid_request'];
  return new HttpError(answered, message, { cause: code });
}

/** Stands for bytes that are no request for this server, so that their refusal is sent in its turn. */
export function noRequest(socket: Socket, fault: Fault): IncomingMessage {
  const request: BrokenRequest = new http.IncomingMessage(socket);
  request.complete = true;
  request[FAULT] = errorOf(fault);
  return request;
}

const NOTHING = Buffer.alloc(0);

/** Limits of one lingering close, as nginx has them. A client that sends for longer may lose the answer. */
const LINGER_MS = 30_000;
const SILENCE_MS = 5_000;
/** Of all connections that are being closed together: 8 MB a second, in 400 reads at most. */
const BYTES_PER_MS = 8_192;
const MS_PER_READ = 2.5;

/** What holds for all connections of a server. */
export class Rules {
  /** Unfinished answers per connection, above which the next request waits. */
  readonly unanswered: number;
  /** When the next connection that is being closed may be read, as of performance.now(). */
  #nextReadAt = 0;

  constructor(unanswered: number) {
    this.unanswered = unanswered;
  }

  /** How long the next read has to wait behind one of so many bytes that were dropped. */
  turnBehind(bytes: number, now: number): number {
    this.#nextReadAt = Math.max(this.#nextReadAt, now) + Math.max(bytes / BYTES_PER_MS, MS_PER_READ);
    return this.#nextReadAt - now;
  }
}

/**
 * One connection of a server: its unfinished answers, and the request behind them. A request begins when the answers
 * before it have ended, so a close is final: what follows an answer that closes the connection never begins (RFC 9112
 * §9.3.2 and §9.6). Node's parser would read all that arrives at once. Here it gets one request at a time, and what
 * follows goes back into the socket.
 *
 * Closing a connection with unread bytes resets it, and the client may lose an answer that it has not read (RFC 9112
 * §9.6). So the server ends only its own side. What a client sends on is read and dropped until the client closes or a
 * limit is reached. It is read slowly, because each byte costs work.
 */
export class Connection {
  /** The unfinished answers, in the order of their requests. */
  readonly answers: ServerResponse[] = [];
  readonly #socket: ParsedSocket;
  readonly #rules: Rules;
  readonly #parser: Parser;
  readonly #bytes = new RequestBytes();
  /** Node's: begins a request. */
  readonly #begin: Parser['onIncoming'];
  /** Node's: gives bytes to the parser, and up the connection behind an upgrade. */
  readonly #onData: (bytes: Buffer) => void;
  /** The answer that waits for its reader, and since when. */
  #slow: ServerResponse | undefined;
  #slowSince = 0;
  /** Once the connection is being closed: until when the client may send on. */
  #lingersUntil = 0;

  constructor(socket: ParsedSocket, rules: Rules) {
    this.#socket = socket;
    this.#rules = rules;
    const parser = socket.parser as Parser;
    this.#parser = parser;
    socket.destroySoon = this.#close;
    this.#begin = parser.onIncoming;
    parser.onIncoming = (request, keepAlive) => {
      if (request.method !== 'CONNECT') return this.#begin.call(parser, request, keepAlive);
      // Otherwise Node would give up the connection, even behind answers in progress.
      request.upgrade = false;
      this.#refuse(CONNECT);
      return 0;
    };
    this.#onData = socket.listeners('data')[0] as (bytes: Buffer) => void;
    socket.removeAllListeners('data');
    socket.on('data', this.#take);
    if (!(socket instanceof TLSSocket)) readIntoOneBuffer(socket, this.#take);
  }

  /** Whether no further request begins. */
  get #isClosing(): boolean {
    return !this.#socket.writable || this.answers.some(closes);
  }

  /** Whether nothing is in progress, and nothing waits. */
  get isIdle(): boolean {
    return this.answers.length === 0 && !this.#hasWaiting;
  }

  /** Whether requests wait. */
  get #hasWaiting(): boolean {
    return this.#socket.writable && this.#socket.readableLength > 0;
  }

  /** Bytes of its unread answers, and of requests that wait. The first answer's bytes are in the socket's buffer. */
  get heldBytes(): number {
    const { writableLength, readableLength } = this.#socket;
    const [, ...behind] = this.answers;
    return behind.reduce((total, answer) => total + answer.writableLength, writableLength + readableLength);
  }

  /**
   * For how long an answer has waited for its reader, as of `now`. Node's own timeout detects only silence, and a client
   * that reads a byte now and then is never silent.
   */
  waitsForReader(now: number): number {
    const answer = this.#socket.writableLength === 0 ? undefined : this.answers[0];
    if (answer !== this.#slow) this.#slowSince = now;
    this.#slow = answer;
    return answer === undefined ? 0 : now - this.#slowSince;
  }

  /** The answer to a request that begins. */
  add(response: ServerResponse): void {
    this.answers.push(response);
    response.once('close', () => {
      takeOut(this.answers, response);
      if (this.#socket.readableLength > 0) setImmediate(this.#proceed);
    });
  }

  /**
   * Bytes that are no request, or the end of the client's patience with one. The rest of a request has no answer of its
   * own.
   */
  fail(fault: Fault): void {
    if (this.#socket.parser?.incoming?.complete !== false) {
      this.#refuse(fault);
      return;
    }
    this.#bytes.isInBody = false;
    const last = this.answers.at(-1);
    if (last === undefined) {
      // The answer to an upgrade is not among them, and closes the connection.
      if (this.#parser.incoming?.upgrade !== true) this.#socket.destroySoon();
    } else {
      last.shouldKeepAlive = false;
      if (last.headersSent) last.once('close', () => this.#socket.destroySoon());
      // Its own answer says so, with the limits of its caller.
      else breakBody(last.req, errorOf(fault));
    }
  }

  /** The server stops: the last answer closes the connection. That is the one in progress if no request waits behind it. */
  drain(): void {
    const last = this.answers.at(-1);
    if (last?.headersSent === false && !this.#hasWaiting) last.shouldKeepAlive = false;
  }

  readonly #take = (bytes: Buffer): void => {
    const socket = this.#socket;
    for (let at = 0; at < bytes.length; ) {
      const { isInBody } = this.#bytes;
      if (!socket.writable || (!isInBody && this.#isClosing)) {
        this.#drop(bytes.length - at);
        return;
      }
      if (socket._paused || (!isInBody && this.answers.length >= this.#rules.unanswered)) {
        socket.pause();
        socket.unshift(own(bytes.subarray(at)));
        return;
      }
      at = this.#parsePart(bytes, at);
    }
  };

  /** @returns where it ends */
  #parsePart(bytes: Buffer, at: number): number {
    const socket = this.#socket;
    const end = this.#bytes.endOfPart(bytes, at);
    if (typeof end !== 'number') this.fail(end);
    // Nothing is read behind what the parser cannot read.
    if (typeof end !== 'number' || !this.#parse(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end)))
      return bytes.length;
    if (socket.parser != null) {
      this.#bytes.follow(socket.parser.incoming);
      return end;
    }
    // The connection speaks another protocol now.
    socket.removeListener('data', this.#take);
    if (end < bytes.length) socket.unshift(own(bytes.subarray(end)));
    return bytes.length;
  }

  /** @returns whether the parser can go on */
  #parse(bytes: Buffer): boolean {
    const read = this.#parser.execute(bytes);
    if (typeof read !== 'number') this.fail(read);
    else if (this.#parser.incoming?.upgrade) this.#onData(NOTHING);
    else if (read < bytes.length) this.fail(UNREPORTED);
    return read === bytes.length;
  }

  /** In a turn of the event loop of its own, so that connections take turns. */
  readonly #proceed = (): void => {
    if (this.answers.length <= this.#rules.unanswered >> 1) this.#socket.resume();
  };

  #refuse(fault: Fault): void {
    if (!this.#isClosing) this.#begin.call(this.#parser, noRequest(this.#socket, fault), false);
  }

  /** Ends the server's side. A second call, as at the server's stop, closes at once. */
  readonly #close = (): void => {
    const socket = this.#socket;
    socket.destroySoon = Socket.prototype.destroySoon;
    socket.end();
    this.#lingersUntil = performance.now() + LINGER_MS;
    socket.setTimeout(SILENCE_MS, () => socket.destroy());
    // A refused upgrade has no listener any more.
    if (socket.listenerCount('data') === 0) socket.on('data', this.#take);
    socket.resume();
  };

  /** What follows a close is not wanted. Until the close it is not even read. */
  #drop(bytes: number): void {
    const socket = this.#socket;
    socket.pause();
    if (socket.writable) return;
    const now = performance.now();
    if (now > this.#lingersUntil) socket.destroy();
    const waits = this.#rules.turnBehind(bytes, now);
    socket.setTimeout(waits + SILENCE_MS);
    setTimeout(() => socket.resume(), waits).unref();
  }
}

const closes = ({ shouldKeepAlive }: ServerResponse): boolean => !shouldKeepAlive;

/** What all connections are read into. */
const READ = Buffer.allocUnsafeSlow(65_536);

/** Its own copy of what was read. */
const own = (bytes: Buffer): Buffer => (bytes.buffer === READ.buffer ? Buffer.from(bytes) : bytes);

/** The fields behind `onread` of net.connect, which a server's connections lack. */
const [BUFFER, ON_READ] = ['kBuffer', 'kBufferCb'].map((name) =>
  Object.getOwnPropertySymbols(new Socket()).find(({ description }) => description === name),
);

/** Without it, Node creates a buffer for each read, which takes longer than to parse a usual request. */
function readIntoOneBuffer(socket: ParsedSocket, take: (bytes: Buffer) => void): void {
  const { _handle: handle } = socket as unknown as { _handle?: { useUserBuffer?(buffer: Buffer): void } | null };
  if (BUFFER === undefined || ON_READ === undefined || handle?.useUserBuffer === undefined) return;
  handle.useUserBuffer(READ);
  Object.assign(socket, {
    [BUFFER]: READ,
    [ON_READ]: (length: number) => {
      const bytes = READ.subarray(0, length);
      const isTaken = socket.parser != null && socket.readableFlowing && socket.readableLength === 0;
      if (isTaken) take(bytes);
      return isTaken || socket.push(Buffer.from(bytes));
    },
  });
}
