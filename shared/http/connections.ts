import type { Server, ServerResponse } from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { KeyedCount } from '../fair-share.ts';
import { Connection, type Rules } from './connection.ts';
import type { LingeringClose } from './lingering-close.ts';
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

/** Bytes behind waiting requests, on all connections together. Above this limit they are dropped. */
const MAX_HELD_BYTES = 33_554_432;

/** The connections of a server, and their limits. */
export class Connections {
  readonly #connections = new Map<Socket, Connection>();
  /** Connections in the TLS handshake, by peer. */
  readonly #handshakes = new Map<string, Socket>();
  readonly #perAddress = new KeyedCount();
  readonly #limits: ServerLimits;
  readonly #caps: ConnectionCaps;
  readonly #rules: Rules;

  constructor(server: Server, limits: ServerLimits, caps: ConnectionCaps, lingeringClose: LingeringClose) {
    this.#limits = limits;
    this.#caps = caps;
    this.#rules = { lingeringClose, unanswered: limits.unanswered, held: { bytes: 0, most: MAX_HELD_BYTES } };
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
    const connection = new Connection(socket, this.#rules);
    this.#connections.set(socket, connection);
    socket.once('close', () => {
      this.#connections.delete(socket);
      connection.forget();
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

  /** Undefined for a peer without TLS, in the middle of its handshake, or gone. */
  of(socket: Socket): Connection | undefined {
    return this.#connections.get(socket);
  }

  /** Lets every connection end with an answer that says so. */
  drain(): void {
    for (const connection of this.#connections.values()) connection.drain();
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
      for (const [socket, { isIdle }] of this.#connections) {
        if (isOver) socket.destroy();
        else if (isIdle && socket.writableLength === 0) socket.destroySoon();
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

const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;

/** Bytes of answers that the client has not read. The first answer's bytes are in the socket's buffer. */
const unreadBytes = (socket: Socket, [, ...behind]: readonly ServerResponse[]): number =>
  behind.reduce((total, { writableLength }) => total + writableLength, socket.writableLength);

/** Cuts the connections with the most unread bytes until all together have at most `mostBytes`. */
function cutMostUnread(
  connections: ReadonlyMap<Socket, Connection>,
  mostBytes: number,
  cut: (socket: Socket) => void,
): void {
  const unread = Array.from(connections, ([socket, { answers }]) => ({ socket, bytes: unreadBytes(socket, answers) }));
  let total = unread.reduce((sum, { bytes }) => sum + bytes, 0);
  if (total <= mostBytes) return;
  for (const { socket, bytes } of unread.sort((one, other) => other.bytes - one.bytes)) {
    cut(socket);
    total -= bytes;
    if (total <= mostBytes) return;
  }
}
