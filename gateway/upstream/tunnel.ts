import { createHash, randomBytes } from 'node:crypto';
import type { ClientRequest, IncomingMessage } from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { createProxyServer } from 'http-proxy-3';
import { type ErrorCode, errorBody, HttpError } from '../../shared/http/errors.ts';
import { http } from '../../shared/http/node-http.ts';
import { pairsOf } from '../../shared/lists.ts';
import { MAX_BODY_BYTES } from './answer.ts';
import { TOO_SLOW } from './connect.ts';
import type { CoreAddress } from './core-addresses.ts';
import { ClientGone, ConnectionLost, CoreRefusedUs, CoreTooSlow, NotConnected, Unreadable } from './faults.ts';
import { responseHeaders, type Upgrade } from './headers.ts';
import type { PendingRequest } from './wire.ts';

/** A WebSocket through the gateway consists of two connections. All data from one is sent on the other. */

/** Status codes of a close frame (RFC 6455 §7.4.1). */
export const CLOSE_CODES = { goingAway: 1001, policyViolation: 1008 } as const;

const CONNECT_TIMEOUT_MS = 1_000;
/** Bytes that follow the client's head are still in the socket. */
const NOTHING = Buffer.alloc(0);
/** The time for both sides to end their connections after the close frame. */
const CLOSE_WITHIN_MS = 1_000;

const UPGRADE = ['Connection', 'Upgrade', 'Upgrade', 'websocket'];

/**
 * The connection to a core for one WebSocket handshake, in place of a wire. Once the core accepts, the connection belongs
 * to the tunnel.
 */
export class HandshakeWire {
  readonly #core: CoreAddress;
  readonly #upgrade: Upgrade;
  /** The handshake, until it is answered or has failed. */
  #pending: PendingRequest | undefined;
  #outgoing: ClientRequest | undefined;

  constructor(core: CoreAddress, upgrade: Upgrade) {
    this.#core = core;
    this.#upgrade = upgrade;
  }

  /** Sends the handshake. Once the core accepts, connects it to the client. */
  send(pending: PendingRequest): void {
    const { request, socket } = this.#upgrade;
    const { url, connect } = this.#core;
    const { host, protocol } = new URL(url);
    const isSecure = protocol === 'https:';
    const agent = new (isSecure ? https : http).Agent({ ...connect });
    // The core's certificate is checked against this Host.
    const proxy = createProxyServer({ target: url, agent, headers: { host } });
    // Faults are handled below until the tunnel is open, and then by the tunnel.
    proxy.on('error', () => {});
    let outgoing!: ClientRequest;
    proxy.once('proxyReqWs', (created) => {
      outgoing = created;
      ask(outgoing, pending, host);
    });
    // With Expect, Node would send the head with the client's headers before `ask` replaces them.
    delete request.headers.expect;
    // Each attempt adds listeners to the client's socket.
    socket.setMaxListeners(0);
    proxy.ws(request, socket, NOTHING);
    this.#pending = pending;
    this.#outgoing = outgoing;

    // The library's own listeners would close the client's connection at any fault and forward any response.
    const [join] = outgoing.listeners('upgrade');
    for (const event of ['error', 'response', 'upgrade']) outgoing.removeAllListeners(event);
    let isConnected = false;
    const timer = setTimeout(() => outgoing.destroy(new CoreTooSlow(TOO_SLOW)), CONNECT_TIMEOUT_MS);
    outgoing.once('close', () => clearTimeout(timer));
    outgoing.once('socket', (core) =>
      core.once(isSecure ? 'secureConnect' : 'connect', () => {
        isConnected = true;
        clearTimeout(timer);
      }),
    );
    outgoing.on('error', (fault) => this.#fail(isConnected ? faultOf(fault) : new NotConnected(fault)));
    outgoing.once('response', (answer) => void this.#refused(answer).catch((fault) => this.#fail(fault)));
    outgoing.once('upgrade', (answer, core, head) => {
      const fault = socket.destroyed ? new ClientGone() : faultInUpgrade(answer, request);
      if (fault === undefined && this.#pending !== undefined)
        this.#open(() => join?.(answer, core, head), answer, core);
      else {
        core.destroy();
        this.#fail(fault);
      }
    });
  }

  /** Closes the connection unless it belongs to a tunnel. An unanswered handshake fails with `fault`. */
  end(fault: unknown = new ConnectionLost()): void {
    const pending = this.#pending;
    this.#pending = undefined;
    this.#outgoing?.destroy();
    pending?.failed(fault);
  }

  close(): void {
    this.end();
  }

  /** Forgets a handshake that is sent again elsewhere. */
  forget(): void {
    this.#pending = undefined;
  }

  /** If the client has just disconnected, waits until its response is closed, so that it is recorded with 499. */
  #fail(fault: unknown): void {
    const { socket } = this.#upgrade;
    const end = () => this.end(socket.destroyed ? new ClientGone() : fault);
    if (!socket.destroyed) end();
    // This property is set before the event is emitted.
    else if (socket.closed) setImmediate(end);
    else socket.once('close', end);
  }

  /** @param join the library's function that answers the client and connects both sides */
  #open(join: () => void, answer: IncomingMessage, core: Socket): void {
    const { headers, opened } = this.#upgrade;
    const all = byName([...responseHeaders(answer.rawHeaders, 101), ...UPGRADE, ...headers]);
    answer.headers = Object.fromEntries(all) as IncomingMessage['headers'];
    join();
    opened(core);
    this.#outgoing = undefined;
    this.#answer(101, [], '');
  }

  /** Reads the error with which the core refuses the handshake. One without a body gets ours. */
  async #refused(answer: IncomingMessage): Promise<void> {
    const { statusCode: status = 0, headers, rawHeaders } = answer;
    if (status < 400) throw new Unreadable(`It does not open the requested WebSocket, but has the status ${status}.`);
    let body = '';
    for await (const part of answer.setEncoding('latin1')) {
      body += part;
      if (body.length > MAX_BODY_BYTES) throw new Unreadable('It is too large for a refused WebSocket handshake.');
    }
    if (body === '' && !CoreRefusedUs.saysSo(status)) this.#refuse(status, headers['retry-after']);
    else this.#answer(status, rawHeaders, body, headers['content-length'] === undefined);
  }

  #refuse(status: number, retryAfter: string | undefined): void {
    const code = REFUSALS[status];
    if (code === undefined) throw new Unreadable(`It refuses the WebSocket with the status ${status} and no body.`);
    const wait = retryAfter === undefined ? [] : ['Retry-After', retryAfter];
    this.#answer(status, ['Content-Type', 'application/json', ...wait], errorBody(new HttpError(code)));
  }

  /** @param isChunked whether the headers lack a Content-Length */
  #answer(status: number, headers: readonly string[], body: string, isChunked = true): void {
    const pending = this.#pending;
    this.#pending = undefined;
    const unknown = { requestId: undefined, keepAliveMs: undefined, length: undefined };
    pending?.answered({ status, headers, ...unknown, isChunked, isLast: true, body }, performance.now(), undefined);
  }
}

/** The errors with which many servers refuse a WebSocket without a body. */
const REFUSALS: Readonly<Record<number, ErrorCode>> = {
  400: 'invalid_request',
  404: 'not_found',
  429: 'rate_limit_exceeded',
  503: 'unavailable',
};

/** Names errors of Node's parser as those of our own. */
const faultOf = (fault: NodeJS.ErrnoException): Error =>
  fault.code?.startsWith('HPE_') ? new Unreadable(fault.message) : fault;

const ACCEPT_SUFFIX = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** Whether a 101 opens the WebSocket that the client requested (RFC 6455 §4.1). A browser would only report a failure. */
function faultInUpgrade({ httpVersion, headers }: IncomingMessage, asked: IncomingMessage): Unreadable | undefined {
  const key = `${asked.headers['sec-websocket-key']}${ACCEPT_SUFFIX}`;
  const isAccepted = headers['sec-websocket-accept'] === createHash('sha1').update(key).digest('base64');
  const isWebSocket = httpVersion === '1.1' && headers.upgrade?.toLowerCase() === 'websocket';
  return isAccepted && isWebSocket ? undefined : new Unreadable('Its 101 does not open the requested WebSocket.');
}

/** Replaces the headers and the target that the library copied from the client. */
function ask(outgoing: ClientRequest, { request: { target, headers }, id }: PendingRequest, host: string): void {
  outgoing.path = target;
  for (const name of outgoing.getHeaderNames()) outgoing.removeHeader(name);
  const all = byName(['Host', host, ...headers, 'X-Request-Id', id, ...UPGRADE]);
  for (const [name, values] of all) outgoing.setHeader(name, values);
}

function byName(headers: readonly string[]): Map<string, string | string[]> {
  const values = new Map<string, string | string[]>();
  for (const [name, value] of pairsOf(headers)) {
    const before = values.get(name);
    values.set(name, before === undefined ? value : [before, value].flat());
  }
  return values;
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
