import { IncomingMessage, type ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { takeOut } from '../lists.ts';
import { breakBody } from './body.ts';
import { type ConnectionFault, connectionError } from './connection-errors.ts';
import type { LingeringClose } from './lingering-close.ts';
import { RequestBytes } from './request-bytes.ts';

/** Parts of Node's server that are missing in its types. */
interface Parser {
  /** The request that is being read, or the last one. */
  readonly incoming: Upgradable | null;
  onIncoming(request: Upgradable, keepAlive: boolean): number;
  /** Returns how many bytes it has read. */
  execute(bytes: Buffer): number | ConnectionFault;
}
type Upgradable = IncomingMessage & { upgrade?: boolean };
/** Node sets `_paused` while too much of the answers is unsent. Its parser accepts nothing then. */
type ParsedSocket = Socket & { readonly _paused?: boolean; readonly parser?: Parser | null };

type Fault = Pick<ConnectionFault, 'code' | 'reason'>;

/** Bytes that are no request for this server. They take the place of one, so that their refusal is sent in its turn. */
export class NoRequest extends IncomingMessage {
  readonly fault: Fault;

  constructor(socket: Socket, fault: Fault) {
    super(socket);
    this.complete = true;
    this.fault = fault;
  }
}

const NOTHING = Buffer.alloc(0);
const CONNECT: Fault = { code: 'CONNECT' };
const TWO_SPACES: Fault = { code: 'TWO_SPACES' };
/** Node reports no error behind an upgrade that was ignored, but its parser reads on no more. */
const UNREPORTED: Fault = { code: 'HPE_UNREPORTED' };

/** What a server decides for all its connections. */
export interface Rules {
  /** Unfinished answers per connection, above which the next request waits. */
  readonly unanswered: number;
  readonly lingeringClose: LingeringClose;
  /** Bytes of waiting requests, of all connections together. */
  readonly held: { bytes: number; readonly most: number };
}

/**
 * One connection of a server: its unfinished answers, and the request behind them. A request begins when the answers
 * before it have ended, so a close is final: what follows an answer that closes the connection never begins (RFC 9112
 * §9.3.2 and §9.6). Node's parser would read all that arrives at once. Here it gets one request at a time, and what
 * follows goes back into the socket.
 */
export class Connection {
  /** The unfinished answers, in the order of their requests. */
  readonly answers: ServerResponse[] = [];
  /** The answer that waits for its reader, and since when. */
  slow?: { readonly answer: ServerResponse; readonly since: number };
  readonly #socket: ParsedSocket;
  readonly #rules: Rules;
  readonly #parser: Parser;
  readonly #bytes = new RequestBytes();
  /** Node's: gives bytes to the parser, and up the connection behind an upgrade. */
  readonly #onData: (bytes: Buffer) => void;
  /** Node's: begins a request, {NoRequest} included. */
  readonly #begin: Parser['onIncoming'];
  #held = 0;

  constructor(socket: ParsedSocket, rules: Rules) {
    this.#socket = socket;
    this.#rules = rules;
    const parser = socket.parser as Parser;
    this.#parser = parser;
    const atOnce = socket.destroySoon;
    socket.destroySoon = () => {
      // A second call, as at the server's stop, closes at once.
      socket.destroySoon = atOnce;
      rules.lingeringClose.close(socket);
    };
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
  get isClosing(): boolean {
    return !this.#socket.writable || this.answers.some(closes);
  }

  /** Whether nothing is in progress, and nothing waits. */
  get isIdle(): boolean {
    return this.answers.length === 0 && this.#held === 0;
  }

  /** The answer to a request that begins. */
  add(response: ServerResponse): void {
    this.answers.push(response);
    response.once('close', () => {
      takeOut(this.answers, response);
      if (this.#held > 0) setImmediate(this.#proceed);
    });
  }

  /**
   * Bytes that are no request, or the end of the client's patience with one. The rest of a request has no answer of its
   * own.
   */
  fail(fault: Fault): void {
    const isInBody = this.#socket.parser?.incoming?.complete === false;
    const last = this.answers.at(-1);
    if (isInBody) this.#bytes.isInBody = false;
    if (!isInBody) this.#refuse(fault);
    else if (last?.req.complete !== false || last.headersSent) this.finish();
    else {
      // Its own answer says so, with the limits of its caller.
      last.shouldKeepAlive = false;
      breakBody(last.req, connectionError(fault));
    }
  }

  /** Closes the connection behind the last answer in progress. */
  finish(): void {
    const last = this.answers.at(-1);
    if (last === undefined) this.#socket.destroySoon();
    else {
      last.shouldKeepAlive = false;
      last.once('close', () => this.#socket.destroySoon());
    }
  }

  /** The server stops: the last answer closes the connection. That is the one in progress if no request waits behind it. */
  drain(): void {
    const last = this.answers.at(-1);
    if (last !== undefined && this.#held === 0) last.shouldKeepAlive = false;
  }

  /** The connection has closed. */
  forget(): void {
    this.#release();
    for (const answer of [...this.answers]) closeQueued(answer);
  }

  readonly #take = (bytes: Buffer): void => {
    this.#release();
    for (let at = 0; at < bytes.length; ) {
      const { isInBody } = this.#bytes;
      if (!this.#socket.writable || (!isInBody && this.isClosing)) {
        this.#drop();
        return;
      }
      if (this.#socket._paused || (!isInBody && this.answers.length >= this.#rules.unanswered)) {
        this.#putBack(bytes.subarray(at));
        return;
      }
      at = this.#parsePart(bytes, at);
    }
  };

  /** @returns where it ends */
  #parsePart(bytes: Buffer, at: number): number {
    const socket = this.#socket;
    const end = this.#bytes.endOfPart(bytes, at);
    const isUsable = end !== -1 && this.#parse(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end));
    if (!isUsable) {
      this.#bytes.isInBody = false;
      if (end === -1) this.#refuse(TWO_SPACES);
      return bytes.length;
    }
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
    const isRead = read === bytes.length;
    if (typeof read !== 'number') this.fail(read);
    else if (this.#parser.incoming?.upgrade) this.#onData(NOTHING);
    else if (!isRead) this.fail(UNREPORTED);
    return isRead;
  }

  /** Keeps what has to wait. If there is too much, the connection ends early. */
  #putBack(rest: Buffer): void {
    const { held } = this.#rules;
    if (held.bytes + rest.length > held.most) {
      this.finish();
      this.#drop();
      return;
    }
    this.#held = rest.length;
    held.bytes += rest.length;
    this.#socket.pause();
    this.#socket.unshift(own(rest));
  }

  /** In a turn of the event loop of its own, so that connections take turns. */
  readonly #proceed = (): void => {
    if (this.answers.length <= this.#rules.unanswered >> 1) this.#socket.resume();
  };

  #refuse(fault: Fault): void {
    if (this.isClosing) this.#drop();
    else this.#begin.call(this.#parser, new NoRequest(this.#socket, fault), false);
  }

  /** What follows a close is not wanted. */
  #drop(): void {
    if (this.#socket.writable) this.#socket.pause();
    this.#rules.lingeringClose.expect(this.#socket);
  }

  #release(): void {
    this.#rules.held.bytes -= this.#held;
    this.#held = 0;
  }
}

const closes = ({ shouldKeepAlive }: ServerResponse): boolean => !shouldKeepAlive;

/** An answer that waits behind another one has no socket yet. Node 24 does not close it with its connection. */
function closeQueued(answer: ServerResponse): void {
  if (answer.socket === null && !answer.destroyed) answer.destroy().emit('close');
}

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
