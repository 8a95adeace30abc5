import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { breakBody } from './body.ts';
import { type ErrorCode, HttpError, methodNotAllowed } from './errors.ts';
import { http } from './node-http.ts';
import { type BegunRequest, BODY_BYTES, type BrokenRequest, FAULT, type Fault, RequestBytes } from './request-head.ts';

/** Parts of Node's server that its types lack. */
interface Parser {
  /** The request being read, or the last one. */
  readonly incoming: Upgradable | null;
  onIncoming(request: Upgradable, keepAlive: boolean): number;
  execute(bytes: Buffer): number | Fault;
}
type Upgradable = BegunRequest & { upgrade?: boolean };
/** Node sets `_paused` while too many bytes of the responses are unsent. Its parser must not get any bytes then. */
type ParsedSocket = Socket & { readonly _paused?: boolean; readonly parser?: Parser | null };

const CONNECT: Fault = { code: 'CONNECT' };
/** After an ignored upgrade, Node's parser stops reading without an error. */
const UNREPORTED: Fault = { code: 'HPE_UNREPORTED' };
/** OpenSSL's code for a plain HTTP request in place of a TLS handshake. */
export const PLAIN_HTTP = 'ERR_SSL_HTTP_REQUEST';
/** llhttp's message for a well-formed version that is not supported. Any other error after HTTP/ is bad syntax. */
const OTHER_VERSION = 'Invalid HTTP version';
/** The error responses, by the code of the fault. All other faults are invalid requests. */
const ERRORS: Readonly<Record<string, readonly [code: ErrorCode, message?: string]>> = {
  HPE_HEADER_OVERFLOW: ['headers_too_large'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['payload_too_large'],
  HPE_INVALID_EOF_STATE: ['invalid_request', 'The request ended before it was complete.'],
  MANY_CHUNKS: ['payload_too_large', 'The request body has too many small chunks.'],
  ERR_HTTP_REQUEST_TIMEOUT: ['request_timeout'],
  [PLAIN_HTTP]: ['invalid_request', 'This port speaks TLS: use a URL that begins with https://.'],
};

function errorOf({ code = '', reason }: Fault): HttpError {
  // CONNECT asks for a tunnel, which no server here opens.
  if (code === 'CONNECT') return methodNotAllowed('GET, HEAD, POST');
  if (reason === OTHER_VERSION) return new HttpError('http_version_not_supported', undefined, { cause: code });
  const [answered, message] = ERRORS[code] ?? ['invalid_request'];
  return new HttpError(answered, message, { cause: code });
}

/** A placeholder for bytes that are not a request for this server, so that the refusal is sent in order. */
export function noRequest(socket: Socket, fault: Fault): IncomingMessage {
  const request: BrokenRequest = new http.IncomingMessage(socket);
  request.complete = true;
  request[FAULT] = errorOf(fault);
  return request;
}

const NOTHING = Buffer.alloc(0);

/** The limits of a lingering close are those of nginx. A client that sends for longer may lose the response. */
const LINGER_MS = 30_000;
const SILENCE_MS = 5_000;
/** The limits of all closing connections together: 8 MB a second, in at most 400 reads. */
const BYTES_PER_MS = 8_192;
const MS_PER_READ = 2.5;

/** The limits and state that all connections of a server share. */
export class Rules {
  /** The number of unfinished responses of a connection at which the next request waits. */
  readonly unanswered: number;
  /** Whether the server is stopping, so that each response closes its connection. */
  isStopping = false;
  /** When the next closing connection may be read, by performance.now(). */
  #nextReadAt = 0;

  constructor(unanswered: number) {
    this.unanswered = unanswered;
  }

  /** How long the next read must wait after this many bytes were read and dropped. */
  turnBehind(bytes: number, now: number): number {
    this.#nextReadAt = Math.max(this.#nextReadAt, now) + Math.max(bytes / BYTES_PER_MS, MS_PER_READ);
    return this.#nextReadAt - now;
  }
}

/**
 * One connection of a server: its unfinished responses, and the request behind them. A request begins only when the
 * responses before it have ended or, for the core's callers, when few enough are unfinished. No request begins after a
 * response that closes the connection (RFC 9112 §9.3.2 and §9.6). Node's parser would read everything that has arrived.
 * Here it gets one request at a time, and the rest goes back into the socket.
 *
 * Closing a connection with unread bytes resets it, and the client may lose a response that it has not read (RFC 9112
 * §9.6). So the server ends only its own side. It reads and drops further data until the client closes the connection
 * or a limit is reached. It reads slowly, because each byte costs work.
 */
export class Connection {
  /** The unfinished responses, in the order of their requests. */
  readonly answers: ServerResponse[] = [];
  readonly #socket: ParsedSocket;
  readonly #rules: Rules;
  readonly #parser: Parser;
  readonly #bytes = new RequestBytes();
  /** Node's own handler, which begins a request. */
  readonly #begin: Parser['onIncoming'];
  /** Node's own listener, which passes bytes to the parser, and hands the connection over after an upgrade. */
  readonly #onData: (bytes: Buffer) => void;
  /** The unfinished response that closes the connection unless the body is read. */
  #undecided: ServerResponse | undefined;
  /** The response whose reader is slow, and when the reader became slow. */
  #slow: ServerResponse | undefined;
  #slowSince = 0;
  /** Until when an idle client may send empty lines; 0 if none has arrived since the last request. */
  #emptyUntil = 0;
  /** The time until which the client of a closing connection may send. */
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
      // Otherwise Node would detach from the connection, even with responses in progress.
      request.upgrade = false;
      this.#refuse(CONNECT);
      return 0;
    };
    this.#onData = socket.listeners('data')[0] as (bytes: Buffer) => void;
    socket.removeAllListeners('data');
    socket.on('data', this.#take);
    if (!(socket instanceof TLSSocket)) readIntoOneBuffer(socket, this.#take);
  }

  get #isClosing(): boolean {
    return !this.#socket.writable || this.answers.some(closes);
  }

  /** Whether no request is in progress and none waits. */
  get isIdle(): boolean {
    return this.answers.length === 0 && !this.#hasWaiting;
  }

  /** Whether the next request waits until a response has ended. */
  get #isFull(): boolean {
    return this.#undecided !== undefined || this.answers.length >= this.#rules.unanswered;
  }

  get #hasWaiting(): boolean {
    return this.#socket.writable && this.#socket.readableLength > 0;
  }

  /**
   * The bytes of unread responses, of waiting requests and of an unfinished body. The bytes of the first response are
   * in the socket's buffer.
   */
  get heldBytes(): number {
    const { writableLength, readableLength, parser } = this.#socket;
    const [, ...behind] = this.answers;
    const body = parser?.incoming?.complete === false ? (parser.incoming[BODY_BYTES]?.() ?? 0) : 0;
    return behind.reduce((total, answer) => total + answer.writableLength, writableLength + readableLength + body);
  }

  /**
   * How long a response has waited for its reader, as of `now`. Node's own timeout detects only silence, and a client
   * that reads a byte now and then is never silent.
   */
  waitsForReader(now: number): number {
    const answer = this.#socket.writableLength === 0 ? undefined : this.answers[0];
    if (answer !== this.#slow) this.#slowSince = now;
    this.#slow = answer;
    return answer === undefined ? 0 : now - this.#slowSince;
  }

  /** @param mayClose whether the response may still close the connection, so that the next request waits for it */
  add(response: ServerResponse, mayClose: boolean): void {
    this.answers.push(response);
    this.#emptyUntil = 0;
    if (mayClose) this.#undecided = response;
    if (this.#rules.isStopping) response.shouldKeepAlive = false;
    response.on('close', () => {
      takeOut(this.answers, response);
      if (this.#undecided === response) this.#undecided = undefined;
      if (this.#socket.readableLength > 0) setImmediate(this.#proceed);
    });
  }

  /**
   * Handles bytes that are not a request, or a request that takes too long. A fault in the rest of a request gets no
   * response of its own.
   */
  fail(fault: Fault): void {
    if (this.#socket.parser?.incoming?.complete !== false) {
      this.#refuse(fault);
      return;
    }
    this.#bytes.isInBody = false;
    const last = this.answers.at(-1);
    if (last === undefined) {
      // A response to an upgrade is not in `answers`, and closes the connection itself.
      if (this.#parser.incoming?.upgrade !== true) this.#socket.destroySoon();
    } else {
      last.shouldKeepAlive = false;
      if (last.headersSent) last.once('close', () => this.#socket.destroySoon());
      // The request's own response reports the fault, with the limit headers of its caller.
      else breakBody(last.req, errorOf(fault));
    }
  }

  /**
   * Called when the server stops. If no request waits behind the last response in progress, that response closes the
   * connection.
   */
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
      if (socket._paused || (!isInBody && this.#isFull)) {
        socket.pause();
        socket.unshift(own(bytes.subarray(at)));
        return;
      }
      if (this.#bytes.isEmpty(bytes, at)) this.#limitEmptyLines();
      at = this.#parsePart(bytes, at);
    }
  };

  /** Any bytes restart Node's timer for idle connections. Empty lines may do so only once after each request. */
  #limitEmptyLines(): void {
    const { timeout = 0 } = this.#socket;
    // Before the first request, the time limit of its head applies.
    if (timeout === 0) return;
    const now = performance.now();
    if (this.#emptyUntil === 0) this.#emptyUntil = now + timeout;
    else this.#socket.setTimeout(Math.max(1, this.#emptyUntil - now));
  }

  /** @returns the end of the part */
  #parsePart(bytes: Buffer, at: number): number {
    const socket = this.#socket;
    const end = this.#bytes.endOfPart(bytes, at);
    if (typeof end !== 'number') this.fail(end);
    // Nothing is read after bytes that the parser cannot read.
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

  /** @returns whether the parser can continue */
  #parse(bytes: Buffer): boolean {
    const read = this.#parser.execute(bytes);
    if (typeof read !== 'number') this.fail(read);
    else if (this.#parser.incoming?.upgrade) this.#onData(NOTHING);
    else if (read < bytes.length) this.fail(UNREPORTED);
    return read === bytes.length;
  }

  /** Runs in a separate turn of the event loop, so that other connections are served in between. */
  readonly #proceed = (): void => {
    if (this.answers.length <= this.#rules.unanswered >> 1) this.#socket.resume();
  };

  #refuse(fault: Fault): void {
    if (!this.#isClosing) this.#begin.call(this.#parser, noRequest(this.#socket, fault), false);
  }

  /** Ends the server's side. A second call, for example when the server stops, closes at once. */
  readonly #close = (): void => {
    const socket = this.#socket;
    socket.destroySoon = Socket.prototype.destroySoon;
    socket.end();
    this.#lingersUntil = performance.now() + LINGER_MS;
    socket.setTimeout(SILENCE_MS, () => socket.destroy());
    // After a refused upgrade the socket has no listener.
    if (socket.listenerCount('data') === 0) socket.on('data', this.#take);
    socket.resume();
  };

  /** Drops bytes that arrive on a closing connection. Until the server's side has ended, no more are read. */
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

/** Adds each response to its connection, then passes the request to `onRequest`. */
export function handleRequests(
  server: Server,
  connections: ReadonlyMap<Socket, Connection | undefined>,
  onRequest: RequestListener,
): void {
  const handle = (request: IncomingMessage, response: ServerResponse, mayClose: boolean) => {
    connections.get(request.socket)?.add(response, mayClose);
    onRequest(request, response);
  };
  // The function that reads the body sends 100 Continue. If the request is refused before that, the client does not
  // send its body (RFC 9110 §10.1.1).
  for (const event of ['request', 'checkExpectation'] as const)
    server.on(event, (request, response) => handle(request, response, false));
  server.on('checkContinue', (request, response) => handle(request, response, true));
}

/** Cuts a connection so that its client notices. Over TLS, the missing close alert is enough. */
export function reset(socket: Socket): void {
  if (socket instanceof TLSSocket) socket.destroy();
  else socket.resetAndDestroy();
}

const closes = ({ shouldKeepAlive }: ServerResponse): boolean => !shouldKeepAlive;

const READ = Buffer.allocUnsafeSlow(65_536);

/** Copies the bytes if they are in the shared buffer. */
const own = (bytes: Buffer): Buffer => (bytes.buffer === READ.buffer ? Buffer.from(bytes) : bytes);

/** The fields behind the `onread` option of net.connect. A server's connections have no such option. */
const [BUFFER, ON_READ] = ['kBuffer', 'kBufferCb'].map((name) =>
  Object.getOwnPropertySymbols(new Socket()).find(({ description }) => description === name),
);

/** Reads into a shared buffer. Creating one for each read, as Node does, takes longer than parsing a usual request. */
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

/**
 * Removes one element from a list. For elements that change with each request, a list needs less memory than a Set. V8
 * replaces a Set's tables as its members change, and each old table keeps the next one and its contents alive. Once one
 * table is in old space, all later ones follow, until a full collection of old space.
 */
function takeOut<T>(list: T[], one: T): void {
  // The oldest element is usually removed first.
  if (list[0] === one) {
    list.shift();
    return;
  }
  const at = list.indexOf(one);
  if (at !== -1) list.splice(at, 1);
}
