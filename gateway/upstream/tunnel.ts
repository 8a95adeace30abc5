import { randomBytes } from 'node:crypto';
import type { ClientRequest, IncomingMessage } from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { createProxyServer } from 'http-proxy-3';
import { type ErrorCode, HttpError } from '../../shared/http/errors.ts';
import { http } from '../../shared/http/node-http.ts';
import { pairsOf } from '../../shared/lists.ts';
import type { CoreAddress } from './core-addresses.ts';
import { ClientGone, CoreTooSlow } from './faults.ts';
import { responseHeaders } from './headers.ts';

/** A WebSocket through the gateway consists of two connections. All data from one is sent on the other. */

/** Status codes of a close frame (RFC 6455 §7.4.1). */
export const CLOSE_CODES = { goingAway: 1001, policyViolation: 1008 } as const;

interface TunnelRequest {
  readonly core: CoreAddress;
  readonly target: string;
  /** A flat list of names and values, without the headers that are not forwarded. */
  readonly headers: readonly string[];
  /** A flat list of names and values, which is sent with the 101 after the core's own headers. */
  readonly extraHeaders: readonly string[];
  /** The time within which the core must accept. */
  readonly timeoutMs: number;
}

/** The client's side. */
export interface Upgrade {
  readonly request: IncomingMessage;
  readonly socket: Socket;
}

const CONNECT_TIMEOUT_MS = 1_000;
/** Bytes that follow the client's head are still in the socket. */
const NOTHING = Buffer.alloc(0);
/** The time for both sides to end their connections after the close frame. */
const CLOSE_WITHIN_MS = 1_000;

const UPGRADE = ['Connection', 'Upgrade', 'Upgrade', 'websocket'];

/**
 * Requests a WebSocket from the core, and connects it to the client once the core accepts.
 * @throws if the core does not accept, before anything is sent to the client: {HttpError} for any response except 101
 */
export function openTunnel(asked: TunnelRequest, { request, socket }: Upgrade): Promise<Tunnel> {
  // The socket's 'close' event has already fired, so nothing would close the core's side before its idle timeout.
  if (socket.destroyed) return Promise.reject(new ClientGone());
  const { promise, resolve, reject } = Promise.withResolvers<Tunnel>();
  const { url, connect } = asked.core;
  const { host, protocol } = new URL(url);
  const agent = new (protocol === 'https:' ? https : http).Agent({ ...connect });
  // The core's certificate is checked against this Host.
  const headers = { host };
  const proxy = createProxyServer({ target: url, agent, headers, connectTimeout: CONNECT_TIMEOUT_MS });
  // Faults are handled below until the tunnel is open, and then by the tunnel.
  proxy.on('error', () => {});
  proxy.once('proxyReqWs', (outgoing) => {
    ask(outgoing, asked);
    outgoing.once('upgrade', (answer) => answerClient(answer, asked.extraHeaders));
    // After this event the library adds its own listeners. They would close the client's connection at any fault and
    // forward any response other than 101, so they are removed before one can run.
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
  // With Expect, Node would send the head with the client's headers before `ask` replaces them.
  delete request.headers.expect;
  proxy.ws(request, socket, NOTHING);
  return promise;
}

/** Replaces the headers and the target that the library copied from the client. */
function ask(outgoing: ClientRequest, { core, target, headers }: TunnelRequest): void {
  outgoing.path = target;
  for (const name of outgoing.getHeaderNames()) outgoing.removeHeader(name);
  const { host } = new URL(core.url);
  for (const [name, values] of byName(['Host', host, ...headers, ...UPGRADE])) outgoing.setHeader(name, values);
}

/** Sets the headers from which the library writes the head of the 101. */
function answerClient(answer: IncomingMessage, extraHeaders: readonly string[]): void {
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

/** The statuses with which a core may refuse a WebSocket. Any other becomes a 502. */
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
  /** When data last arrived from either side, by performance.now(). */
  lastActiveAt = performance.now();
  /** Why the gateway closed it, if it did. */
  closedBecause: string | undefined;

  constructor(client: Socket, core: Socket) {
    this.#client = client;
    this.#core = core;
    client.on('data', this.#onClientData);
    core.on('data', this.#onCoreData);
    client.on('error', () => core.destroy());
    // The remaining side gets a moment for data that is still in transit.
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

  /** Closes both sides. Sends the reason, unless that would split a frame that is half sent. */
  close(code: number, because: string): void {
    this.closedBecause = because;
    this.#core.unpipe(this.#client);
    this.#client.unpipe(this.#core);
    if (this.#fromCore.isBetweenFrames) this.#client.write(closeFrame(code, false));
    if (this.#fromClient.isBetweenFrames) this.#core.write(closeFrame(code, true));
    for (const socket of [this.#client, this.#core]) {
      // Remaining data is read and dropped, so that the end of the stream is noticed.
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

/**
 * Tracks the frames of a WebSocket in one direction (RFC 6455 §5.2), so that our own can be sent between two of them.
 */
export class FrameBoundary {
  #head: number[] = [];
  #payloadLeft = 0;

  get isBetweenFrames(): boolean {
    return this.#head.length === 0 && this.#payloadLeft === 0;
  }

  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#payloadLeft > 0) {
        const skipped = Math.min(this.#payloadLeft, chunk.length - at);
        this.#payloadLeft -= skipped;
        at += skipped;
      } else {
        this.#head.push(chunk[at++] as number);
        this.#readHead();
      }
    }
  }

  #readHead(): void {
    const [, second] = this.#head;
    if (second === undefined || this.#head.length < headLength(second)) return;
    this.#payloadLeft = payloadLength(this.#head, second & 0x7f);
    this.#head = [];
  }
}

/** The head has two bytes, then an optional extended length and an optional mask. */
function headLength(second: number): number {
  const length = second & 0x7f;
  return 2 + (length === 127 ? 8 : length === 126 ? 2 : 0) + (second & 0x80 ? 4 : 0);
}

function payloadLength(head: readonly number[], length: number): number {
  if (length < 126) return length;
  return head.slice(2, length === 126 ? 4 : 10).reduce((sum, byte) => sum * 256 + byte, 0);
}

/** @param isMasked required for frames from a client (RFC 6455 §5.3) */
export function closeFrame(code: number, isMasked: boolean): Buffer {
  const payload = Buffer.from([code >> 8, code & 0xff]);
  if (!isMasked) return Buffer.concat([Buffer.from([0x88, 2]), payload]);
  const mask = randomBytes(4);
  return Buffer.concat([Buffer.from([0x88, 0x82]), mask, payload.map((byte, at) => byte ^ (mask[at] as number))]);
}
