import type { Server, ServerResponse } from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { KeyedCount } from './keyed-count.ts';
import { type ParserStopped, Pipelining } from './pipelining.ts';
import type { ServerLimits } from './server-limits.ts';
import { takeOut } from './take-out.ts';
import { cutMostUnread } from './unread-answers.ts';

/** Which limit a connection was over. */
export type ConnectionLimit = 'total' | 'address';

/** Why a connection was cut: one answer took its time, or too much that all leave unread was its own. */
export type CutFor = 'slow_reader' | 'unread_answers';

export interface ConnectionCaps {
  /**
   * Under which name a peer's connections are counted together; undefined where they are not, as for a proxy that brings
   * everyone's. Without it there is only the limit for all.
   */
  readonly countedAs?: ((remoteAddress: string | undefined) => string | undefined) | undefined;
  /** Told of every connection that was closed because there were too many. */
  readonly onRefused?: ((limit: ConnectionLimit) => void) | undefined;
  /** Told of every connection that was cut because its answers were not read. */
  readonly onCut?: ((reason: CutFor) => void) | undefined;
}

interface Connection {
  /** What is being answered on it, in the order in which it was asked. */
  readonly answers: ServerResponse[];
  /** The answer that was seen waiting for its reader, and since when. */
  slow?: { readonly answer: ServerResponse; readonly since: number };
}

/** The connections of a server, how many there may be, and what is being answered on each. */
export class Connections {
  readonly #connections = new Map<Socket, Connection>();
  /** Connections that still have to agree on TLS, by their peer. */
  readonly #handshakes = new Map<string, Socket>();
  readonly #perAddress = new KeyedCount();
  readonly #pipelining = new Pipelining();
  readonly #limits: ServerLimits;
  readonly #caps: ConnectionCaps;

  constructor(server: Server, limits: ServerLimits, caps: ConnectionCaps) {
    this.#limits = limits;
    this.#caps = caps;
    // Past this Node closes a connection as it is accepted, which is as cheap as it gets.
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

  /** False for one that is one too many, and is closed. A connection counts from its first packet on, also in its handshake. */
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
    });
  }

  #shakeHands(socket: Socket): void {
    const peer = peerOf(socket);
    this.#handshakes.set(peer, socket);
    socket.once('close', () => this.#handshakes.get(peer) === socket && this.#handshakes.delete(peer));
  }

  /** From here on it is the TLS socket that stands for the connection. */
  #secured(socket: Socket): void {
    this.#handshakes.delete(peerOf(socket));
    this.#add(socket);
  }

  /** The bare connection on which a handshake failed; what is written to it is not encrypted. */
  handshakeOf(secure: Socket): Socket | undefined {
    return this.#handshakes.get(peerOf(secure));
  }

  /** False for a request behind an answer that closes the connection: it must not be processed (RFC 9112 §9.6). */
  answering(response: ServerResponse): boolean {
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

  /** Keeps the requests behind the one at which the parser was stopped; where there are too many bytes of them, they get no answer. */
  keepUnread(fault: ParserStopped, socket: Socket): void {
    if (!this.#pipelining.keep(socket, fault)) this.finish(socket);
  }

  #answersOn(socket: Socket): ServerResponse[] | undefined {
    return this.#connections.get(socket)?.answers;
  }

  /** Whether nothing is being answered. */
  isIdle(socket: Socket): boolean {
    return this.#answersOn(socket)?.length === 0;
  }

  /**
   * Whether an error may be written on a connection whose bytes make no sense any more. Only the request that they belong
   * to may be waiting for an answer, with nothing of it sent: anything else would take the error for its own.
   */
  mayWriteError(socket: Socket): boolean {
    const answers = this.#answersOn(socket);
    // Whoever speaks no TLS, or has not finished its handshake, could not read it.
    if (answers === undefined) return false;
    const [first, second] = answers;
    return first === undefined || (second === undefined && !first.req.complete && !first.headersSent);
  }

  /** Lets the answers to whole requests end, and closes the connection then; half a request ends it at once. */
  finish(socket: Socket): void {
    const last = this.#answersOn(socket)?.at(-1);
    if (last === undefined || !last.req.complete) socket.destroy();
    else last.once('close', () => socket.destroySoon());
  }

  closeAfterAnswers(): void {
    for (const { answers } of this.#connections.values())
      for (const response of answers) response.shouldKeepAlive = false;
  }

  /** Waits until every connection has ended by itself, as long as there is time. */
  async gone(withinMs: number): Promise<void> {
    const deadline = performance.now() + withinMs;
    while (this.#connections.size > 0 && performance.now() < deadline) await sleep(10);
  }

  /** Ends every connection once it is idle, and all that are left when the time is over. */
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
   * Node's own timeout sees silence only: a client that takes a byte now and then is never silent. Here an answer has a
   * time in which it must be taken whole. Looked at twice per check, so that none is cut more than one check late.
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

const closes = ({ shouldKeepAlive }: ServerResponse): boolean => !shouldKeepAlive;

const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;
