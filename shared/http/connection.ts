import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { takeOut } from '../lists.ts';
import { CONNECT, TWO_SPACES } from './connection-errors.ts';
import type { LingeringClose } from './lingering-close.ts';
import { RequestLines } from './request-line.ts';

/** llhttp's HPE_PAUSED: returned by a callback, it stops the parser behind the last head. */
const PAUSED = 21;
const NOTHING = Buffer.alloc(0);
const END_OF_HEAD = '\r\n\r\n';

/** Parts of Node's server that are missing in its types. */
interface Parser {
  /** The request that is being read, or the last one. */
  readonly incoming: IncomingMessage | null;
  onIncoming(request: Upgradable, keepAlive: boolean): number;
  resume(): void;
  /** A copy of what is being parsed. */
  getCurrentBuffer(): Buffer;
}
type ParsedSocket = Socket & { _paused?: boolean; readonly parser?: Parser | null };

/** Node clears `upgrade` on a request that it takes for a plain one. */
type Upgradable = IncomingMessage & { upgrade?: boolean };

/** The error that Node reports when the parser was stopped. */
export interface ParserStopped extends NodeJS.ErrnoException {
  readonly rawPacket: Buffer;
  readonly bytesParsed: number;
}

export const isParserStopped = (fault: NodeJS.ErrnoException): fault is ParserStopped => fault.code === 'HPE_PAUSED';

/** What a server decides for all its connections. */
export interface Rules {
  /** Unfinished answers per connection, above which the next request waits. */
  readonly unanswered: number;
  /** Whether a request that asks for an upgrade gets it. */
  accepts(request: IncomingMessage): boolean;
  /** Answers what is no request for this server, and closes the connection. */
  refuse(code: typeof CONNECT | typeof TWO_SPACES, socket: Socket): void;
  readonly lingeringClose: LingeringClose;
  /** Bytes behind waiting requests, of all connections together. */
  readonly held: { bytes: number; readonly most: number };
}

/** What begins once the answers before it have ended. */
interface Next {
  /** It begins when so many answers or fewer are unfinished. */
  readonly behind: number;
  readonly begin: () => void;
}

/**
 * One connection of a server: its unfinished answers, and the request behind them. A request begins when the answers
 * before it have ended, so a close is final: what follows an answer that closes the connection never begins (RFC 9112
 * §9.3.2 and §9.6). Node parses all that one read brings, up to 64 kB, before anything else runs. Here the parser stops
 * at the head of the request that has to wait. What follows that head goes back into the socket.
 */
export class Connection {
  /** The unfinished answers, in the order of their requests. */
  readonly answers: ServerResponse[] = [];
  /** The answer that waits for its reader, and since when. */
  slow?: { readonly answer: ServerResponse; readonly since: number };
  readonly #socket: ParsedSocket;
  readonly #rules: Rules;
  #next: Next | undefined;
  #held = 0;
  /** Whether the parser reads from the stream. */
  #isStream = false;

  constructor(socket: ParsedSocket, rules: Rules) {
    this.#socket = socket;
    this.#rules = rules;
    const { parser } = socket;
    if (parser == null) return;
    const atOnce = socket.destroySoon;
    socket.destroySoon = () => {
      // A second call, as at the server's stop, closes at once.
      socket.destroySoon = atOnce;
      rules.lingeringClose.close(socket);
    };
    const lines = new RequestLines(socket, () => parser.getCurrentBuffer());
    const { onIncoming } = parser;
    parser.onIncoming = (request, keepAlive) => {
      const isFree = this.#isFree;
      let keeps = keepAlive;
      if (request.upgrade && !(isFree && (request.method === 'CONNECT' || rules.accepts(request)))) {
        // It is a plain request. The parser drops what one read brings behind it, so its answer may have to be the last.
        request.upgrade = false;
        keeps &&= isFree && bringsOneHead(parser.getCurrentBuffer());
      }
      const isTwoSpaced = lines.hasTwoSpaces(request);
      if (isFree && !isTwoSpaced) return onIncoming.call(parser, request, keeps);
      if (this.isClosing) this.#drop();
      else if (isTwoSpaced) this.#wait(() => rules.refuse(TWO_SPACES, socket), 0);
      else if (request.method === 'CONNECT') this.#wait(() => rules.refuse(CONNECT, socket), 0);
      else this.#wait(() => onIncoming.call(parser, request, keeps));
      return PAUSED;
    };
  }

  get #isFree(): boolean {
    return this.#next === undefined && this.answers.length < this.#rules.unanswered && !this.isClosing;
  }

  /** Whether no further request begins. */
  get isClosing(): boolean {
    return !this.#socket.writable || this.answers.some(closes);
  }

  /** Whether nothing is in progress, and nothing waits. */
  get isIdle(): boolean {
    return this.answers.length === 0 && this.#next === undefined;
  }

  /** The answer to a request of which a part is still to come, if it has not begun and is the only one. */
  get incomplete(): ServerResponse | undefined {
    const [first, second] = this.answers;
    return second === undefined && first?.req.complete === false && !first.headersSent ? first : undefined;
  }

  /** The answer to a request that begins. */
  add(response: ServerResponse): void {
    this.answers.push(response);
    response.once('close', () => {
      takeOut(this.answers, response);
      this.#proceed();
    });
  }

  /**
   * Bytes that are no request, or the end of the client's patience with one. Calls `refuse`, which answers and closes
   * the connection, when the answers in progress have ended. The rest of a request has no answer of its own.
   */
  refuseNext(refuse: () => void): void {
    if (this.isClosing) this.#drop();
    else if (this.#socket.parser?.incoming?.complete === false) this.finish();
    else if (this.isIdle) refuse();
    else if (this.#next === undefined) this.#wait(refuse, 0);
  }

  /** Keeps what follows the head at which the parser stopped. If there is too much, the connection ends early. */
  keep({ rawPacket, bytesParsed }: ParserStopped): void {
    if (this.#next === undefined) {
      this.#drop();
      return;
    }
    const rest = rawPacket.subarray(bytesParsed);
    const { held } = this.#rules;
    if (held.bytes + rest.length > held.most) {
      this.#release();
      this.finish();
      this.#drop();
      return;
    }
    this.#held = rest.length;
    held.bytes += rest.length;
    if (rest.length > 0) this.#socket.unshift(rest);
    this.#proceed();
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
    if (last !== undefined && this.#next === undefined) last.shouldKeepAlive = false;
  }

  /** The connection has closed. */
  forget(): void {
    this.#release();
    for (const answer of [...this.answers]) closeQueued(answer);
  }

  /** What follows a close is not wanted. */
  #drop(): void {
    this.#socket.pause();
    this.#rules.lingeringClose.expect(this.#socket);
  }

  #wait(begin: () => void, behind = this.#rules.unanswered >> 1): void {
    const socket = this.#socket;
    this.#next = { begin, behind };
    if (!this.#isStream) this.#readStream();
    socket.pause();
    // Node resumes a socket once its output has drained.
    socket.resume = () => socket;
  }

  /** Node's parser reads past the stream's buffer, where the rest waits, until somebody listens to the stream itself. */
  #readStream(): void {
    this.#isStream = true;
    const socket = this.#socket;
    // A body that was read slowly may have stopped the system's side, which the stream does not know.
    socket._paused = false;
    socket.emit('resume');
    socket.on('data', ignore);
    // The client may have ended its side, which ends the connection once nothing waits.
    const listeners = socket.listeners('end');
    socket.removeAllListeners('end');
    socket.on('end', () => {
      if (this.#next === undefined) for (const listener of listeners) listener.call(socket);
    });
  }

  /** Begins what waits, in the next turn of the event loop, so that connections take turns. */
  #proceed(): void {
    if (this.#next !== undefined && this.answers.length <= this.#next.behind) setImmediate(this.#take);
  }

  readonly #take = (): void => {
    const socket = this.#socket;
    const next = this.#next;
    if (next === undefined || this.answers.length > next.behind) return;
    this.#release();
    if (this.isClosing) {
      this.#drop();
      return;
    }
    next.begin();
    if (!socket.writable) return;
    // The parser must finish the request at which it stopped, even if nothing follows.
    socket._paused = false;
    socket.parser?.resume();
    socket.emit('data', NOTHING);
    if (socket.readableEnded) socket.emit('end');
    else socket.resume();
  };

  /** Nothing waits any more. */
  #release(): void {
    this.#next = undefined;
    this.#rules.held.bytes -= this.#held;
    this.#held = 0;
    Reflect.deleteProperty(this.#socket, 'resume');
  }
}

/** Whether a read brings one head and nothing else. */
const bringsOneHead = (read: Buffer): boolean => read.indexOf(END_OF_HEAD) === read.length - END_OF_HEAD.length;

const ignore = (): void => {};

const closes = ({ shouldKeepAlive }: ServerResponse): boolean => !shouldKeepAlive;

/** An answer that waits behind another one has no socket yet. Node 24 does not close it with its connection. */
function closeQueued(answer: ServerResponse): void {
  if (answer.socket === null && !answer.destroyed) answer.destroy().emit('close');
}
