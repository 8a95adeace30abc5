import type { Server, ServerResponse } from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { KeyedCount } from '../fair-share.ts';
import { takeOut } from '../lists.ts';
import { type ParserStopped, Pipelining } from './pipelining.ts';
import type { ServerLimits } from './server-limits.ts';

/** Which limit a connection exceeded. */
export type ConnectionLimit = 'total' | 'address';

/** Why a connection was cut: its reader was too slow for one answer, or held most of all unread bytes. */
export type CutFor = 'slow_reader' | 'unread_answers';

export interface ConnectionCaps {
  /**
   * The name under which a peer's connections are counted. Undefined if they are not counted, as for a proxy that
   * serves many clients. Without this function, only the total is limited.
   */
  readonly countedAs?: ((remoteAddress: string | undefined) => string | undefined) | undefined;
  /** Called for every connection that was closed because there were too many. */
  readonly onRefused?: ((limit: ConnectionLimit) => void) | undefined;
  /** Called for every connection that was cut because its answers were not read. */
  readonly onCut?: ((reason: CutFor) => void) | undefined;
}

interface Connection {
  /** The unfinished answers, in the order of their requests. */
  readonly answers: ServerResponse[];
  /** The answer that waits for its reader, and since when. */
  slow?: { readonly answer: ServerResponse; readonly since: number };
}

/** The connections of a server, their limits, and the unfinished answers on each. */
export class Connections {
  readonly #connections = new Map<Socket, Connection>();
  /** Connections in the TLS handshake, by peer. */
  readonly #handshakes = new Map<string, Socket>();
  readonly #perAddress = new KeyedCount();
  readonly #pipelining = new Pipelining();
  readonly #limits: ServerLimits;
  readonly #caps: ConnectionCaps;

  constructor(server: Server, limits: ServerLimits, caps: ConnectionCaps) {
    this.#limits = limits;
    this.#caps = caps;
    // Above this limit Node closes a connection as soon as it accepts it, which is the cheapest way.
    server.maxConnections = limits.connections;
    server.on('drop', () => caps.onRefused?.('total'));
    const isTls = server instanceof https.Server;
    server.on('connection', (socket) => {
      if (this.#count(socket)) isTls ? this.#shakeHands(socket) : this.#add(socket);
    });
    server.on('secureConnection', (socket: Socket) => this.#secured(socket));
    const sweep = () => {
      this.#cutSlowReaders();
      cutMostUnread(this.#connections, limits.unreadBytes, (socket) => this.#cut(socket, 'unread_answers'));
    };
    const sweeping = setInterval(sweep, limits.checkEveryMs / 2).unref();
    server.once('close', () => clearInterval(sweeping));
  }

  /**
   * Counts a connection from its first packet on, handshake included. Returns false if there are too many; the
   * connection is then closed.
   */
  #count(socket: Socket): boolean {
    const name = this.#caps.countedAs?.(socket.remoteAddress);
    if (name === undefined) return true;
    if (this.#perAddress.of(name) >= this.#limits.connectionsPerAddress) {
      socket.destroy();
      this.#caps.onRefused?.('address');
      return false;
    }
    this.#perAddress.add(name);
    socket.once('close', () => this.#perAddress.remove(name));
    return true;
  }

  #add(socket: Socket): void {
    const answers: ServerResponse[] = [];
    this.#connections.set(socket, { answers });
    this.#pipelining.watch(socket, () => answers.length >= this.#limits.unanswered);
    socket.once('close', () => {
      this.#connections.delete(socket);
      this.#pipelining.forget(socket);
      for (const answer of [...answers]) closeQueued(answer);
    });
  }

  #shakeHands(socket: Socket): void {
    const peer = peerOf(socket);
    this.#handshakes.set(peer, socket);
    socket.once('close', () => this.#handshakes.get(peer) === socket && this.#handshakes.delete(peer));
  }

  /** After the handshake, the TLS socket represents the connection. */
  #secured(socket: Socket): void {
    this.#handshakes.delete(peerOf(socket));
    this.#add(socket);
  }

  /** The raw socket of a failed handshake. Data written to it is not encrypted. */
  handshakeOf(secure: Socket): Socket | undefined {
    return this.#handshakes.get(peerOf(secure));
  }

  /** False for a request after an answer that closes the connection: it must not be processed (RFC 9112 §9.6). */
  beginAnswer(response: ServerResponse): boolean {
    const { socket } = response.req;
    const answers = this.#answersOn(socket);
    if (answers === undefined) return true;
    if (answers.some(closes)) return false;
    answers.push(response);
    response.on('close', () => {
      takeOut(answers, response);
      if (answers.length <= this.#limits.unanswered / 2 && !answers.some(closes)) this.#pipelining.resume(socket);
    });
    return true;
  }

  /**
   * Keeps the bytes behind the request at which the parser stopped. If there are too many, they are dropped and get no
   * answer.
   */
  keepUnread(fault: ParserStopped, socket: Socket): void {
    if (!this.#pipelining.keep(socket, fault)) this.finish(socket);
  }

  #answersOn(socket: Socket): ServerResponse[] | undefined {
    return this.#connections.get(socket)?.answers;
  }

  /** Whether no answer is in progress. False for a peer without TLS, or in the middle of its handshake. */
  isIdle(socket: Socket): boolean {
    return this.#answersOn(socket)?.length === 0;
  }

  /** The answer to a request of which a part is still to come, if it has not begun and is the only one that waits. */
  incompleteOn(socket: Socket): ServerResponse | undefined {
    const [first, second] = this.#answersOn(socket) ?? [];
    return second === undefined && first?.req.complete === false && !first.headersSent ? first : undefined;
  }

  /** Finishes the answers to complete requests, then closes the connection. An incomplete request closes it at once. */
  finish(socket: Socket): void {
    const last = this.#answersOn(socket)?.at(-1);
    if (last === undefined || !last.req.complete) socket.destroy();
    else last.once('close', () => socket.destroySoon());
  }

  closeAfterAnswers(): void {
    for (const { answers } of this.#connections.values())
      for (const response of answers) response.shouldKeepAlive = false;
  }

  /** Waits until every connection has ended by itself, for at most this time. */
  async gone(withinMs: number): Promise<void> {
    const deadline = performance.now() + withinMs;
    while (this.#connections.size > 0 && performance.now() < deadline) await sleep(10);
  }

  /** Closes every connection when it is idle, and all others when the time is over. */
  async end(graceMs: number): Promise<void> {
    const deadline = performance.now() + graceMs;
    for (const socket of this.#handshakes.values()) socket.destroy();
    while (this.#connections.size > 0) {
      const isOver = performance.now() > deadline;
      for (const [socket, { answers }] of this.#connections) {
        if (isOver) socket.destroy();
        else if (answers.length === 0 && socket.writableLength === 0) socket.destroySoon();
      }
      await sleep(10);
    }
  }

  /**
   * Limits the time in which an answer must be read completely. Node's own timeout detects only silence, and a client
   * that reads a byte now and then is never silent. The check runs twice per interval, so that no cut is more than one
   * interval late.
   */
  #cutSlowReaders(): void {
    const now = performance.now();
    for (const [socket, connection] of this.#connections) {
      const [answer] = connection.answers;
      if (answer === undefined || socket.writableLength === 0) delete connection.slow;
      else if (connection.slow?.answer !== answer) connection.slow = { answer, since: now };
      else if (now - connection.slow.since >= this.#limits.answerMs) this.#cut(socket, 'slow_reader');
    }
  }

  #cut(socket: Socket, reason: CutFor): void {
    socket.destroy();
    this.#caps.onCut?.(reason);
  }
}

/** An answer that waits behind another one has no socket yet. Node 24 does not close it with its connection. */
function closeQueued(answer: ServerResponse): void {
  if (answer.socket === null && !answer.destroyed) answer.destroy().emit('close');
}

const closes = ({ shouldKeepAlive }: ServerResponse): boolean => !shouldKeepAlive;

const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;

/** The unfinished answers on each connection, in the order of their requests. */
type Answering = Iterable<readonly [Socket, { readonly answers: readonly ServerResponse[] }]>;

/** Bytes of answers that the client has not read. The first answer's bytes are in the socket's buffer. */
const unreadBytes = (socket: Socket, [, ...behind]: readonly ServerResponse[]): number =>
  behind.reduce((total, { writableLength }) => total + writableLength, socket.writableLength);

/** Cuts the connections with the most unread bytes until all together have at most `mostBytes`. */
function cutMostUnread(connections: Answering, mostBytes: number, cut: (socket: Socket) => void): void {
  const unread = Array.from(connections, ([socket, { answers }]) => ({ socket, bytes: unreadBytes(socket, answers) }));
  let total = unread.reduce((sum, { bytes }) => sum + bytes, 0);
  if (total <= mostBytes) return;
  for (const { socket, bytes } of unread.sort((one, other) => other.bytes - one.bytes)) {
    cut(socket);
    total -= bytes;
    if (total <= mostBytes) return;
  }
}
