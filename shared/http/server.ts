import { constants } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, RequestListener, Server, ServerOptions, ServerResponse } from 'node:http';
import https from 'node:https';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { TLSSocket } from 'node:tls';
import { KeyedCount } from '../fair-share.ts';
import { every } from '../process/repeat.ts';
import { Connection, handleRequests, noRequest, PLAIN_HTTP, Rules, reset } from './connection.ts';
import { http } from './node-http.ts';
import { type Fault, KEPT_HEADER_LINES } from './request-head.ts';

/**
 * These options are fixed, so that Node's command-line options have no effect. ALPN selects HTTP/1.1 and refuses
 * clients that offer only other protocols (RFC 7301 §3.2).
 */
const TLS: https.ServerOptions = {
  minVersion: 'TLSv1.2',
  // Only TLS 1.2 has renegotiation, which costs the server ten times what it costs the client.
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
  // Only ciphers with forward secrecy and AEAD. The first three are for TLS 1.3.
  ciphers: [
    'TLS_AES_256_GCM_SHA384',
    'TLS_CHACHA20_POLY1305_SHA256',
    'TLS_AES_128_GCM_SHA256',
    'ECDHE-ECDSA-AES256-GCM-SHA384',
    'ECDHE-RSA-AES256-GCM-SHA384',
    'ECDHE-ECDSA-CHACHA20-POLY1305',
    'ECDHE-RSA-CHACHA20-POLY1305',
    'ECDHE-ECDSA-AES128-GCM-SHA256',
    'ECDHE-RSA-AES128-GCM-SHA256',
  ].join(':'),
};

interface StopOptions {
  /**
   * How long to keep accepting connections while readiness probes fail and responses close their connections. Load
   * balancers use this time to choose other servers.
   */
  lameDuckMs?: number | undefined;
  /**
   * How long, after that, open connections may still get one response each before idle ones are closed. Defaults to
   * lameDuckMs. 0 closes idle ones at once.
   */
  lingerMs?: number | undefined;
  /** How long the remaining requests may then take. */
  graceMs?: number;
}

export interface RunningServer {
  /** The base URL with the actual port. */
  readonly url: string;
  /** True as soon as `stop` is called: readiness probes fail and responses carry `Connection: close`. */
  readonly stopping: boolean;
  /** Uses another certificate for new connections; open ones keep theirs. Only for servers with TLS. */
  renew(certificate: Certificate): void;
  stop(options?: StopOptions): Promise<void>;
}

/** A certificate chain and its private key, both in PEM. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

export interface Listening extends ConnectionCaps {
  host: string;
  /** 0 selects a free port. */
  port: number;
  /**
   * The name of the port's setting, for the error message if the address is not available. The host's setting has the
   * same name, but with HOST in place of PORT.
   */
  portSetting?: string;
  /**
   * Also called for bytes that are not a request and for requests that take too long. `checkHead` refuses them, and the
   * response closes the connection.
   */
  onRequest: RequestListener;
  upgrades?: Upgrades | undefined;
  /** With a certificate, the server speaks only TLS. */
  certificate?: Certificate | undefined;
  /** Node's default if undefined. */
  maxHeaderBytes?: number | undefined;
  limits?: Partial<ServerLimits> | undefined;
}

const DEFAULT_GRACE_MS = 10_000;

/**
 * Opens an HTTP/1.1 server, over TLS if there is a certificate.
 * @throws the system's error, for instance EADDRINUSE, with the `setting`, if the address is not available
 */
export async function startServer(listening: Listening): Promise<RunningServer> {
  const { host, port, portSetting = 'PORT', onRequest, upgrades, certificate } = listening;
  const limits = { ...DEFAULT_LIMITS, ...listening.limits };
  const options: ServerOptions = {
    insecureHTTPParser: false,
    // A request that announces no body gets no stream for one.
    optimizeEmptyRequests: true,
    joinDuplicateHeaders: false,
    noDelay: true,
    // Otherwise Node would answer in its own format. `checkHead` checks Host anyway.
    requireHostHeader: false,
    maxHeaderSize: listening.maxHeaderBytes,
    headersTimeout: limits.headersMs,
    requestTimeout: limits.requestMs,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: limits.checkEveryMs,
    shouldUpgradeCallback: (request) => upgrades?.accepts(request) === true,
  };
  const server = certificate === undefined ? http.createServer(options) : createTlsServer(options, certificate);
  // A client that has ended its side still gets the responses to its requests.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.maxHeadersCount = KEPT_HEADER_LINES;
  if (upgrades !== undefined) takeUpgrades(server, upgrades);
  const connections = new Connections(server, limits, listening);
  handleRequests(server, connections.all, onRequest);
  server.on('clientError', (fault: NodeJS.ErrnoException & Fault, stream) => {
    const socket = stream as Socket;
    const connection = connections.all.get(socket);
    const bare = fault.code === PLAIN_HTTP ? connections.handshakeOf(socket) : undefined;
    if (bare !== undefined) {
      const request = noRequest(bare, fault);
      // After the failed handshake, Node would destroy the connection in this turn. Keeping it open gives the client
      // time to read the response.
      bare.destroy = () => bare;
      setImmediate(() => Reflect.deleteProperty(bare, 'destroy'));
      bare.destroySoon = () => bare.end();
      bare.setTimeout(limits.keepAliveMs, () => bare.destroy());
      onRequest(request, lastResponse(request, bare));
    } else if (connection === undefined || socket.destroyed) socket.destroy();
    else connection.fail(fault);
  });
  server.listen(port, host);
  await once(server, 'listening').catch((fault: Error) => {
    throw Object.assign(fault, { setting: portSetting });
  });

  return {
    url: urlOf(certificate === undefined ? 'http' : 'https', server.address() as AddressInfo),
    get stopping() {
      return connections.isStopping;
    },
    renew(renewed) {
      if (server instanceof https.Server) server.setSecureContext({ ...TLS, ...renewed });
    },
    async stop({ lameDuckMs = 0, lingerMs = lameDuckMs, graceMs = DEFAULT_GRACE_MS } = {}) {
      connections.drain();
      await sleep(lameDuckMs);
      // http.Server's own `close` would cut connections whose first request is still arriving.
      net.Server.prototype.close.call(server);
      await connections.end(lingerMs, graceMs);
    },
  };
}

function createTlsServer(options: ServerOptions, certificate: Certificate): https.Server {
  // Node's default handshake timeout is two minutes.
  const own = { handshakeTimeout: options.headersTimeout };
  return https.createServer({ ...options, ...TLS, ...certificate, ...own } as https.ServerOptions);
}

function urlOf(scheme: string, { address, family, port }: AddressInfo): string {
  return `${scheme}://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

/** Requests after which a connection speaks another protocol (RFC 9110 §7.8). Any other upgrade is ignored. */
interface Upgrades {
  /** Whether a request is such an upgrade. If so, `take` must answer it. */
  accepts(request: IncomingMessage): boolean;
  /** Takes over the connection, or sends a response that closes it. */
  take(request: IncomingMessage, response: ServerResponse, socket: Socket): void;
}

/** Node hands over the connection with this event and creates no response, so this function creates one. */
function takeUpgrades(server: Server, { take }: Upgrades): void {
  server.on('upgrade', (request, stream) => {
    // While a body is unread, the event's socket is not the connection but a Node stream on top of it (Node 26).
    const { socket } = request;
    for (const side of [socket, stream]) side.on('error', () => socket.destroy());
    take(request, lastResponse(request, socket), socket);
  });
}

/** A response on a connection that Node no longer manages. It closes the connection. */
function lastResponse(request: IncomingMessage, socket: Socket): ServerResponse {
  const response = new http.ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  response.once('finish', () => {
    response.detachSocket(socket);
    response.emit('close');
    socket.destroySoon();
  });
  return response;
}

/** What a server allows its clients. Times are in milliseconds. */
export interface ServerLimits {
  /** Time for the head of a request to arrive, and for the first request on a connection to begin. */
  readonly headersMs: number;
  /** Time for a whole request to arrive. */
  readonly requestMs: number;
  /** Time for the client to read a response, from the moment when the response first waits for the client. */
  readonly answerMs: number;
  /** Time between a response and the next request. */
  readonly keepAliveMs: number;
  /** Time without data on a WebSocket. Most clients and servers ping twice a minute. */
  readonly webSocketIdleMs: number;
  /** How often these limits are checked. */
  readonly checkEveryMs: number;
  /**
   * The maximum number of bytes of unread responses, waiting requests and unfinished bodies in this process. Above it,
   * the connections with the most bytes are cut.
   */
  readonly unreadBytes: number;
  /** The maximum number of requests in progress on one connection. Further ones wait until responses have ended. */
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

/**
 * How long a client may take to begin a request, send it and read the response. Node keeps an idle connection open a
 * second longer than it announces.
 */
export const LONGEST_USE_MS = DEFAULT_LIMITS.keepAliveMs + 1_500 + DEFAULT_LIMITS.requestMs + DEFAULT_LIMITS.answerMs;

/** The limit that a connection exceeded. */
export type ConnectionLimit = 'total' | 'address';

/** Why a connection was cut: its client was too slow for one response, or it held the most bytes. */
const CUT_FOR = {
  slow_reader: 'The connection was cut because the client was too slow to read the response.',
  unread_answers: 'The connection was cut because its unread responses and unfinished requests took too much memory.',
};
type CutFor = keyof typeof CUT_FOR;

const cut = new WeakMap<ServerResponse, string>();

/** Why the connection of a response was cut; undefined if it was not. */
export const whyCut = (response: ServerResponse): string | undefined => cut.get(response);

interface ConnectionCaps {
  /**
   * The name under which a peer's connections are counted. Undefined if they are not counted, as for a proxy with many
   * clients. Without this function, only the total is limited.
   */
  readonly countedAs?: ((remoteAddress: string | undefined) => string | undefined) | undefined;
  /** Called for every connection that was closed because there were too many. */
  readonly onRefused?: ((limit: ConnectionLimit) => void) | undefined;
  /** Called for every connection that was cut, with the reason. */
  readonly onCut?: ((reason: CutFor) => void) | undefined;
}

/** The connections of a server, and their limits. */
class Connections {
  /** A TCP connection below TLS has no {Connection}, and is listed only during the handshake. */
  readonly all = new Map<Socket, Connection | undefined>();
  readonly #perAddress = new KeyedCount();
  readonly #limits: ServerLimits;
  readonly #caps: ConnectionCaps;
  readonly #rules: Rules;

  constructor(server: Server, limits: ServerLimits, caps: ConnectionCaps) {
    this.#limits = limits;
    this.#caps = caps;
    this.#rules = new Rules(limits.unanswered);
    // Above this limit, Node closes connections as soon as it has accepted them, which is the cheapest way.
    server.maxConnections = limits.connections;
    server.on('drop', () => caps.onRefused?.('total'));
    const isTls = server instanceof https.Server;
    server.on('connection', (socket) => {
      if (this.#count(socket)) this.#add(socket, isTls ? undefined : new Connection(socket, this.#rules));
    });
    server.on('secureConnection', (socket: Socket) => {
      this.all.delete(below(socket));
      // Not before: a client that ends its side during the handshake can get no response.
      socket.allowHalfOpen = true;
      this.#add(socket, new Connection(socket, this.#rules));
    });
    server.once(
      'close',
      every(limits.checkEveryMs / 2, () => this.#sweep()),
    );
  }

  /**
   * Counts a connection from its first packet on, handshake included. If there are too many, closes the connection and
   * returns false.
   */
  #count(socket: Socket): boolean {
    const name = this.#caps.countedAs?.(socket.remoteAddress);
    if (name === undefined) return true;
    // Without an address, its client has already reset the connection.
    const isGone = socket.remoteAddress === undefined;
    if (isGone || this.#perAddress.of(name) >= this.#limits.connectionsPerAddress) {
      socket.destroy();
      if (!isGone) this.#caps.onRefused?.('address');
      return false;
    }
    this.#perAddress.add(name);
    socket.once('close', () => this.#perAddress.remove(name));
    return true;
  }

  #add(socket: Socket, connection: Connection | undefined): void {
    this.all.set(socket, connection);
    socket.once('close', () => this.all.delete(socket));
  }

  /** The TCP connection below a failed TLS handshake. Data written to it is not encrypted. */
  handshakeOf(secure: Socket): Socket | undefined {
    return this.all.has(below(secure)) ? below(secure) : undefined;
  }

  get isStopping(): boolean {
    return this.#rules.isStopping;
  }

  /** Makes every connection close after its next response, which announces the close. */
  drain(): void {
    this.#rules.isStopping = true;
    for (const connection of this.all.values()) connection?.drain();
  }

  /** Closes idle connections after `lingerMs`, and all others after another `graceMs`. */
  async end(lingerMs: number, graceMs: number): Promise<void> {
    const begin = performance.now() + lingerMs;
    for (; this.all.size > 0; await sleep(10)) {
      const now = performance.now();
      if (now < begin) continue;
      for (const [socket, connection] of this.all) {
        if (connection === undefined || now > begin + graceMs) socket.destroy();
        else if (connection.isIdle && socket.writableLength === 0) socket.destroySoon();
      }
    }
  }

  /** Runs twice per interval, so that no connection is cut more than one interval late. */
  #sweep(): void {
    const now = performance.now();
    const held: { readonly socket: Socket; readonly bytes: number }[] = [];
    for (const [socket, connection] of this.all) {
      if (connection === undefined) continue;
      if (isReset(socket)) socket.destroy();
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
    const answer = this.all.get(socket)?.answers[0];
    // In HTTP/1.0 the end of the connection would be the end of the response.
    if (answer?.req.httpVersion === '1.0') reset(socket);
    else socket.destroy();
    if (answer !== undefined) cut.set(answer, CUT_FOR[reason]);
    this.#caps.onCut?.(reason);
  }
}

/**
 * Whether a client that has closed its side of TLS has also reset the connection. After a close alert, Node reports
 * neither that nor the failure of a write (Node 26).
 */
function isReset(socket: Socket): boolean {
  if (!(socket instanceof TLSSocket) || !(socket.readableEnded || socket.isPaused())) return false;
  return (below(socket) as { _handle?: { getpeername(to: object): number } | null })._handle?.getpeername({}) !== 0;
}

/** The connection below a TLS connection, which Node's types lack. It keeps the address even after a reset. */
export const below = (socket: Socket): Socket => (socket as unknown as { _parent: Socket })._parent;
