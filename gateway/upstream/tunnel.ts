import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { createProxyServer } from 'http-proxy-3';
import { type ErrorCode, HttpError } from '../../shared/errors.ts';
import { pairsOf } from '../../shared/lists.ts';
import { CoreTooSlow } from './faults.ts';
import { closeFrame, FrameBoundary } from './frame-boundary.ts';
import { responseHeaders } from './headers.ts';

/** A WebSocket that goes through the gateway: two connections, and all that comes on either goes out on the other. */

/** Status codes of a closing (RFC 6455 §7.4.1). */
export const CLOSE_CODES = { goingAway: 1001, policyViolation: 1008 } as const;

export interface TunnelRequest {
  /** The core's. */
  readonly origin: string;
  readonly target: string;
  /** Flat list, filtered. */
  readonly headers: readonly string[];
  /** Put on the 101 behind the core's own, as a flat list. */
  readonly extraHeaders: readonly string[];
  /** For the core to agree. */
  readonly timeoutMs: number;
}

/** The client's side. */
export interface Upgrade {
  readonly request: IncomingMessage;
  readonly socket: Socket;
  /** What came with the request, behind its head. */
  readonly head: Buffer;
}

const CONNECT_TIMEOUT_MS = 1_000;
/** For both sides to end a connection that was closed on them. */
const CLOSE_WITHIN_MS = 1_000;

const UPGRADE = ['Connection', 'Upgrade', 'Upgrade', 'websocket'];

/**
 * Asks the core for a WebSocket, and joins it to the client's connection once the core agrees.
 * @throws the fault when it did not, with nothing sent to the client: {HttpError} for another answer than 101
 */
export function openTunnel(asked: TunnelRequest, { request, socket, head }: Upgrade): Promise<Tunnel> {
  const { promise, resolve, reject } = Promise.withResolvers<Tunnel>();
  const proxy = createProxyServer({ target: asked.origin, connectTimeout: CONNECT_TIMEOUT_MS });
  // Faults are heard where they happen: before the tunnel is open below, then by the tunnel.
  proxy.on('error', () => {});
  proxy.once('proxyReqWs', (outgoing) => {
    ask(outgoing, asked);
    outgoing.once('upgrade', (answer) => tellClient(answer, asked.extraHeaders));
    // Behind this event the library puts listeners of its own, which end the client's connection at any fault, and pass on
    // any other answer in a framing of their own. They give way before anything can have happened.
    queueMicrotask(() => {
      outgoing.removeAllListeners('error').on('error', reject);
      outgoing.removeAllListeners('response').once('response', (answer: IncomingMessage) => {
        reject(refusal(answer));
        outgoing.destroy();
      });
    });
    const giveUp = (fault?: Error) => void outgoing.destroy(fault);
    const timer = setTimeout(() => giveUp(new CoreTooSlow()), asked.timeoutMs);
    const clientGone = () => giveUp();
    outgoing.once('close', () => clearTimeout(timer));
    socket.once('close', clientGone);
    proxy.once('open', (core) => {
      clearTimeout(timer);
      socket.off('close', clientGone);
      resolve(new Tunnel(socket, core));
    });
  });
  proxy.ws(request, socket, head);
  return promise;
}

/** Replaces what the library has made of the client's request, headers and target, by what was decided on. */
function ask(outgoing: ClientRequest, { origin, target, headers }: TunnelRequest): void {
  outgoing.path = target;
  for (const name of outgoing.getHeaderNames()) outgoing.removeHeader(name);
  const { host } = new URL(origin);
  for (const [name, values] of byName(['Host', host, ...headers, ...UPGRADE])) outgoing.setHeader(name, values);
}

/** The library writes the head of the 101 from these. */
function tellClient(answer: IncomingMessage, extraHeaders: readonly string[]): void {
  const headers = byName([...responseHeaders(answer.rawHeaders, 101), ...UPGRADE, ...extraHeaders]);
  answer.headers = Object.fromEntries(headers) as IncomingMessage['headers'];
}

function byName(headers: readonly string[]): Map<string, string | string[]> {
  const values = new Map<string, string | string[]>();
  for (const [name, value] of pairsOf(headers)) {
    const before = values.get(name);
    values.set(name, before === undefined ? value : [before, value].flat());
  }
  return values;
}

/** What the core may say of a WebSocket that it does not open; the rest is no usable answer. */
const REFUSALS: Readonly<Record<number, ErrorCode>> = { 400: 'invalid_request', 404: 'not_found', 503: 'unavailable' };

function refusal({ statusCode = 0 }: IncomingMessage): HttpError {
  return new HttpError(REFUSALS[statusCode] ?? 'bad_gateway', undefined, {
    cause: new Error(`The core answered ${statusCode} to a WebSocket handshake.`),
  });
}

export class Tunnel {
  readonly #client: Socket;
  readonly #core: Socket;
  readonly #fromClient = new FrameBoundary();
  readonly #fromCore = new FrameBoundary();
  bytesFromClient = 0;
  bytesFromCore = 0;
  /** When something last came, from either side; of performance.now(). */
  lastActiveAt = performance.now();

  constructor(client: Socket, core: Socket) {
    this.#client = client;
    this.#core = core;
    client.on('data', this.#onClientData);
    core.on('data', this.#onCoreData);
    client.on('error', () => core.destroy());
    // The one that is left has a moment for what is still on its way.
    client.once('close', () => endWithin(core));
    core.once('close', () => endWithin(client));
  }

  readonly #onClientData = (chunk: Buffer): void => {
    this.#fromClient.push(chunk);
    this.bytesFromClient += chunk.length;
    this.lastActiveAt = performance.now();
  };

  readonly #onCoreData = (chunk: Buffer): void => {
    this.#fromCore.push(chunk);
    this.bytesFromCore += chunk.length;
    this.lastActiveAt = performance.now();
  };

  /** Closes both sides, telling why where that is possible: where a frame is half sent, no other can be put in. */
  close(code: number): void {
    this.#core.unpipe(this.#client);
    this.#client.unpipe(this.#core);
    if (this.#fromCore.isBetweenFrames) this.#client.write(closeFrame(code, false));
    if (this.#fromClient.isBetweenFrames) this.#core.write(closeFrame(code, true));
    for (const socket of [this.#client, this.#core]) {
      // What still comes is read and dropped, so that the end behind it is seen.
      socket.resume();
      endWithin(socket);
    }
  }

  onceClosed(listener: () => void): void {
    this.#client.once('close', listener);
  }
}

function endWithin(socket: Socket): void {
  if (socket.destroyed) return;
  socket.end();
  const timer = setTimeout(() => socket.destroy(), CLOSE_WITHIN_MS);
  socket.once('close', () => clearTimeout(timer));
}
