import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
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
  maxHeaderSize: 16_384,
  insecureHTTPParser: false,
  joinDuplicateHeaders: false,
  noDelay: true,
};

const SILENCE_MS = 30_000;

export interface StopOptions {
  /**
   * How long to go on taking requests while readiness is red and answers close their connections, so that who balances
   * between servers can turn away first. 0 stops taking them at once.
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
  /** Answers bytes that are not HTTP; Node's bare 400 otherwise. */
  onClientError?: (error: NodeJS.ErrnoException, socket: Socket) => void;
}

const DEFAULT_GRACE_MS = 10_000;

/**
 * Opens an HTTP/1.1 server with our limits.
 * @throws the system's error, EADDRINUSE for instance, when the address cannot be taken
 */
export async function startServer({ host, port, onRequest, onClientError }: Listening): Promise<RunningServer> {
  const server = http.createServer(LIMITS);
  const unanswered = new Set<http.ServerResponse>();
  let stopping = false;
  const answer: http.RequestListener = (request, response) => {
    unanswered.add(response);
    response.once('close', () => unanswered.delete(response));
    if (stopping) response.shouldKeepAlive = false;
    onRequest(request, response);
  };
  server.on('request', answer);
  // Whoever reads the body invites it; a request refused before that never sends it (RFC 9110 §10.1.1).
  server.on('checkContinue', answer);
  server.setTimeout(SILENCE_MS);
  if (onClientError !== undefined) server.on('clientError', onClientError);
  server.listen(port, host);
  await once(server, 'listening');

  return {
    url: urlOf(server.address() as AddressInfo),
    get stopping() {
      return stopping;
    },
    async stop({ lameDuckMs = 0, graceMs = DEFAULT_GRACE_MS } = {}) {
      stopping = true;
      for (const response of unanswered) response.shouldKeepAlive = false;
      await sleep(lameDuckMs);
      await close(server, graceMs);
    },
  };
}

function urlOf({ address, family, port }: AddressInfo): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

async function close(server: http.Server, graceMs: number): Promise<void> {
  const closed = server.listening ? once(server, 'close') : Promise.resolve();
  server.close();
  // A connection that was busy when the server closed becomes idle later, and nobody else would close it then.
  const idle = setInterval(() => server.closeIdleConnections(), 20);
  const overdue = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  clearInterval(idle);
  clearTimeout(overdue);
}
