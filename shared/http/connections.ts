import type { Server } from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { KeyedCount } from '../fair-share.ts';
import { Connection, Rules } from './connection.ts';

/** What a server allows its clients. Times are in milliseconds. */
export interface ServerLimits {
  /** Time until the head of a request has arrived, and for the first request of a connection to begin. */
  readonly headersMs: number;
  /** Time until a whole request has arrived. */
  readonly requestMs: number;
  /** Time for the client to read an answer, from the moment when the answer first waits for it. */
  readonly answerMs: number;
  /** Time between an answer and the next request. */
  readonly keepAliveMs: number;
  /** Time without data on a WebSocket. Most clients and servers ping twice a minute. */
  readonly webSocketIdleMs: number;
  /** How often these limits are checked. */
  readonly checkEveryMs: number;
  /**
   * The most bytes of unread answers and waiting requests in this process. Above this, the connections with the most
   * are cut.
   */
  readonly unreadBytes: number;
  /** Requests of a connection that are served at once. The next one begins when answers have ended. */
  readonly unanswered: number;
  readonly connections: number;
  readonly connectionsPerAddress: number;
}

/**
 * The limits of all servers here. Node's own defaults give a slow client minutes (headersTimeout 60 s, checked every 30
 * s), never drop a client that does not read, and accept any number of connections.
 */
export const DEFAULT_LIMITS: ServerLimits = {
  headersMs: 10_000,
  requestMs: 30_000,
  answerMs: 30_000,
  keepAliveMs: 5_000,
  webSocketIdleMs: 60_000,
  checkEveryMs: 1_000,
  unreadBytes: 33_554_432,
  unanswered: 1,
  connections: 10_000,
  connectionsPerAddress: 1_000,
};

/** The limit that a connection exceeded. */
export type ConnectionLimit = 'total' | 'address';

/** Why a connection was cut: its client was too slow for one answer, or had the most unread bytes. */
type CutFor = 'slow_reader' | 'unread_answers';

export interface ConnectionCaps {
  /**
   * The name under which a peer's connections are counted. Undefined if they are not counted, as for a proxy with many
   * clients. Without this function, only the total is limited.
   */
  readonly countedAs?: ((remoteAddress: string | undefined) => string | undefined) | undefined;
  /** Called for every connection that was closed because there were too many. */
  readonly onRefused?: ((limit: ConnectionLimit) => void) | undefined;
  /** Called for every connection that was cut because its answers were not read. */
  readonly onCut?: ((reason: CutFor) => void) | undefined;
}

/** The connections of a server, and their limits. */
export class Connections {
  /** A TCP connection below TLS has no {Connection}, and is listed only during the handshake. */
  readonly #connections = new Map<Socket, Connection | undefined>();
  readonly #perAddress = new KeyedCount();
  readonly #limits: ServerLimits;
  readonly #caps: ConnectionCaps;
  readonly #rules: Rules;

  constructor(server: Server, limits: ServerLimits, caps: ConnectionCaps) {
    this.#limits = limits;
    this.#caps = caps;
    this.#rules = new Rules(limits.unanswered);
    // Above this limit Node closes connections as soon as it accepts them, which is the cheapest way.
    server.maxConnections = limits.connections;
    server.on('drop', () => caps.onRefused?.('total'));
    const isTls = server instanceof https.Server;
    server.on('connection', (socket) => {
      if (this.#count(socket)) this.#add(socket, isTls ? undefined : new Connection(socket, this.#rules));
    });
    server.on('secureConnection', (socket: Socket) => {
      this.#connections.delete(below(socket));
      this.#add(socket, new Connection(socket, this.#rules));
    });
    const sweeping = setInterval(() => this.#sweep(), limits.checkEveryMs / 2).unref();
    server.once('close', () => clearInterval(sweeping));
  }

  /**
   * Counts a connection from its first packet on, handshake included. Returns false if there are too many, and closes
   * the connection.
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

  #add(socket: Socket, connection: Connection | undefined): void {
    this.#connections.set(socket, connection);
    socket.once('close', () => this.#connections.delete(socket));
  }

  /** The TCP connection below a failed TLS handshake. Data written to it is not encrypted. */
  handshakeOf(secure: Socket): Socket | undefined {
    return this.#connections.has(below(secure)) ? below(secure) : undefined;
  }

  /** Undefined on a TLS server until the handshake is complete, and for a connection that is gone. */
  of(socket: Socket): Connection | undefined {
    return this.#connections.get(socket);
  }

  /** Makes every connection end with an answer that announces it. */
  drain(): void {
    for (const connection of this.#connections.values()) connection?.drain();
  }

  /** Closes idle connections after `lingerMs`, and all others after another `graceMs`. */
  async end(lingerMs: number, graceMs: number): Promise<void> {
    const begin = performance.now() + lingerMs;
    for (; this.#connections.size > 0; await sleep(10)) {
      const now = performance.now();
      if (now < begin) continue;
      for (const [socket, connection] of this.#connections) {
        if (connection === undefined || now > begin + graceMs) socket.destroy();
        else if (connection.isIdle && socket.writableLength === 0) socket.destroySoon();
      }
    }
  }

  /** Runs twice per interval, so that no connection is cut more than one interval late. */
  #sweep(): void {
    const now = performance.now();
    const held: { readonly socket: Socket; readonly bytes: number }[] = [];
    for (const [socket, connection] of this.#connections) {
      if (connection === undefined) continue;
      if (connection.waitsForReader(now) >= this.#limits.answerMs) this.#cut(socket, 'slow_reader');
      held.push({ socket, bytes: connection.heldBytes });
    }
    let total = held.reduce((sum, { bytes }) => sum + bytes, 0);
    if (total <= this.#limits.unreadBytes) return;
    for (const { socket, bytes } of held.sort((one, other) => other.bytes - one.bytes)) {
      this.#cut(socket, 'unread_answers');
      total -= bytes;
      if (total <= this.#limits.unreadBytes) return;
    }
  }

  #cut(socket: Socket, reason: CutFor): void {
    socket.destroy();
    this.#caps.onCut?.(reason);
  }
}

/** The connection below a TLS connection, which Node's types lack. */
const below = (socket: Socket): Socket => (socket as unknown as { _parent: Socket })._parent;
