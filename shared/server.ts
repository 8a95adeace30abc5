import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * What every HTTP server of ours allows a connection (milliseconds and bytes). Node's own defaults leave a slow client
 * minutes (headersTimeout 60 s, checked every 30 s) and never drop one that does not read.
 */
const LIMITS: http.ServerOptions = {
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  connectionsCheckingInterval: 1_000,
  keepAliveTimeout: 5_000,
  insecureHTTPParser: false,
  joinDuplicateHeaders: false,
  noDelay: true,
  // Node would answer by itself, in its own shape; who listens looks at Host anyway.
  requireHostHeader: false,
};

const DEFAULT_HEADER_BYTES = 16_384;
/** Above requestTimeout, which has an answer to give. */
const DEFAULT_SILENCE_MS = 35_000;

export interface StopOptions {
  /**
   * How long to go on taking requests while readiness is red and answers close their connections, so that who balances
   * between servers can turn away first; and as long again for connections that were taken to be used. 0 ends at once
   * what is idle.
   */
  lameDuckMs?: number | undefined;
  /** How long what is in flight may then take to end. */
  graceMs?: number;
}

export interface RunningServer {
  /** Base URL with the port that was really taken. */
  readonly url: string;
  /** True from the moment `stop` is called: readiness probes turn red and answers carry `Connection: close`. */
  readonly stopping: boolean;
  stop(options?: StopOptions): Promise<void>;
}

export interface Listening {
  host: string;
  /** 0 takes a free port. */
  port: number;
  onRequest: http.RequestListener;
  /**
   * Answers a connection whose bytes are not HTTP, or that asks for a tunnel, while nothing else is being answered on it.
   * Without it such connections are cut.
   */
  onUnusable?: (fault: NodeJS.ErrnoException, socket: Socket) => void;
  maxHeaderBytes?: number;
  /** After which a connection is cut on which nothing moves in either direction. */
  silenceMs?: number;
}

const DEFAULT_GRACE_MS = 10_000;

/**
 * Opens an HTTP/1.1 server with our limits.
 * @throws the system's error, EADDRINUSE for instance, when the address cannot be taken
 */
export async function startServer(listening: Listening): Promise<RunningServer> {
  const {
    host,
    port,
    onRequest,
    onUnusable,
    maxHeaderBytes = DEFAULT_HEADER_BYTES,
    silenceMs = DEFAULT_SILENCE_MS,
  } = listening;
  const server = http.createServer({ ...LIMITS, maxHeaderSize: maxHeaderBytes });
  const connections = new Connections();
  let stopping = false;

  const answer: http.RequestListener = (request, response) => {
    connections.answering(response);
    if (stopping) response.shouldKeepAlive = false;
    onRequest(request, response);
  };
  // Whoever reads the body invites it; a request refused before that never sends it (RFC 9110 §10.1.1).
  for (const event of ['request', 'checkContinue', 'checkExpectation'] as const) server.on(event, answer);
  const unusable = (fault: NodeJS.ErrnoException, socket: Socket) => {
    if (connections.mayWriteError(socket) && onUnusable !== undefined) onUnusable(fault, socket);
    else connections.finish(socket);
  };
  server.on('clientError', (fault, socket) => unusable(fault, socket as Socket));
  server.on('connect', (_request, socket) =>
    unusable(Object.assign(new Error('CONNECT'), { code: 'CONNECT' }), socket as Socket),
  );
  server.on('connection', (socket) => connections.add(socket));
  server.setTimeout(silenceMs);
  server.listen(port, host);
  await once(server, 'listening');

  return {
    url: urlOf(server.address() as AddressInfo),
    get stopping() {
      return stopping;
    },
    async stop({ lameDuckMs = 0, graceMs = DEFAULT_GRACE_MS } = {}) {
      stopping = true;
      connections.closeAfterAnswers();
      await sleep(lameDuckMs);
      // http's own close would cut connections whose first request is still on its way.
      net.Server.prototype.close.call(server);
      await sleep(lameDuckMs);
      await connections.end(graceMs);
    },
  };
}

function urlOf({ address, family, port }: AddressInfo): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

/** The connections of a server, and what is being answered on each. */
class Connections {
  readonly #answering = new Map<Socket, Set<http.ServerResponse>>();

  add(socket: Socket): void {
    this.#answering.set(socket, new Set());
    socket.once('close', () => this.#answering.delete(socket));
  }

  answering(response: http.ServerResponse): void {
    const answers = this.#answering.get(response.req.socket);
    answers?.add(response);
    response.once('close', () => answers?.delete(response));
  }

  isBusy(socket: Socket): boolean {
    return (this.#answering.get(socket)?.size ?? 0) > 0;
  }

  /**
   * Whether an error may be written on a connection whose bytes make no sense any more. Only the request that they belong
   * to may be waiting for an answer, with nothing of it sent: anything else would take the error for its own.
   */
  mayWriteError(socket: Socket): boolean {
    const [first, second] = this.#answering.get(socket) ?? [];
    return first === undefined || (second === undefined && !first.req.complete && !first.headersSent);
  }

  /** Lets the answers to whole requests end, and closes the connection then; half a request ends it at once. */
  finish(socket: Socket): void {
    const answers = [...(this.#answering.get(socket) ?? [])];
    const last = answers.at(-1);
    if (last === undefined || !last.req.complete) socket.destroy();
    else last.once('close', () => socket.destroySoon());
  }

  closeAfterAnswers(): void {
    for (const answers of this.#answering.values()) for (const response of answers) response.shouldKeepAlive = false;
  }

  /** Ends every connection once it is idle, and all that are left when the time is over. */
  async end(graceMs: number): Promise<void> {
    const deadline = performance.now() + graceMs;
    while (this.#answering.size > 0) {
      const isOver = performance.now() > deadline;
      for (const socket of this.#answering.keys()) {
        if (isOver) socket.destroy();
        else if (!this.isBusy(socket) && socket.writableLength === 0) socket.destroySoon();
      }
      await sleep(10);
    }
  }
}
