import type { IncomingMessage } from 'node:http';
import { HttpError } from '../../shared/http/errors.ts';
import { every } from '../../shared/process/repeat.ts';
import type { Credential } from '../limiter/credential.ts';
import type { Limiter, Verdict } from '../limiter/limiter.ts';
import { CLOSE_CODES, type Tunnel } from '../upstream/tunnel.ts';

/**
 * Whether a request asks to upgrade to WebSocket and nothing else (RFC 6455 §4.1). HTTP/1.0 has no upgrades (RFC 9110
 * §7.8).
 */
export const asksForWebSocket = ({ method, httpVersion, headers: { upgrade = '' } }: IncomingMessage): boolean =>
  method === 'GET' && httpVersion === '1.1' && upgrade.toLowerCase() === 'websocket';

/** Sixteen bytes in base64 (RFC 6455 §4.1). */
const HANDSHAKE_KEY = /^[\w+/]{22}==$/;

/** @throws {HttpError} 400 for an invalid opening handshake (RFC 6455 §4.2.1) */
export function checkHandshake({ headers }: IncomingMessage): void {
  if (headers['sec-websocket-version'] !== '13' || !HANDSHAKE_KEY.test(String(headers['sec-websocket-key']))) {
    throw new HttpError('invalid_request', 'The WebSocket handshake must follow RFC 6455, version 13.');
  }
  // Headers named in Connection are not forwarded, so the core would have to refuse the handshake.
  if (/sec-websocket/i.test(headers.connection ?? '')) {
    throw new HttpError('invalid_request', 'The Connection header must not list Sec-WebSocket headers.');
  }
}

/** The outcomes that close a WebSocket. An empty bucket does not: only the handshake takes a token. */
const REFUSED: ReadonlySet<Verdict['outcome']> = new Set(['unauthorized', 'forbidden', 'banned']);

/** The close code for both sides, and the reason in the log. */
type Closing = readonly [code: number, because: string];
const STOPPING: Closing = [CLOSE_CODES.goingAway, 'The WebSocket was closed because the gateway is stopping.'];
const IDLE: Closing = [CLOSE_CODES.goingAway, 'The WebSocket was closed because it was idle.'];
const INVALID: Closing = [
  CLOSE_CODES.policyViolation,
  'The WebSocket was closed because its key is no longer valid or is banned.',
];

/** A revoked key or secret must stop working within a second, so keys are checked twice a second. */
const LOOK_EVERY_MS = 500;

/**
 * The open WebSockets. They are closed when they are idle, when the key that opened them could no longer do so, for
 * example because it is revoked or banned, and when the gateway stops.
 */
export class Tunnels {
  readonly #open = new Map<Tunnel, Credential>();
  readonly #limiter: Pick<Limiter, 'peek'>;
  readonly #idleMs: number;
  readonly #endLooking: () => void;
  #isLooking = false;
  #stopped = false;

  constructor(limiter: Pick<Limiter, 'peek'>, idleMs: number) {
    this.#limiter = limiter;
    this.#idleMs = idleMs;
    this.#endLooking = every(LOOK_EVERY_MS, () => this.#closeInvalid());
  }

  /** True once the open WebSockets are being closed and new ones are refused. */
  get stopped(): boolean {
    return this.#stopped;
  }

  add(tunnel: Tunnel, credential: Credential): void {
    this.#open.set(tunnel, credential);
    tunnel.onceClosed(() => this.#open.delete(tunnel));
    if (this.#stopped) tunnel.close(...STOPPING);
  }

  stop(): void {
    this.#stopped = true;
    this.#endLooking();
    for (const tunnel of this.#open.keys()) this.#close(tunnel, STOPPING);
  }

  async #closeInvalid(): Promise<void> {
    if (this.#isLooking || this.#open.size === 0) return;
    this.#isLooking = true;
    this.#closeIdle();
    // Checks each secret once per address, however many WebSockets it has. The Redis client pipelines concurrent queries.
    const openers = Map.groupBy(this.#open, ([, { cacheKey, use }]) => `${cacheKey} ${use.address}`);
    await Promise.all([...openers.values()].map((tunnels) => this.#closeUnlessValid(tunnels)));
    this.#isLooking = false;
  }

  #closeIdle(): void {
    const latest = performance.now() - this.#idleMs;
    for (const tunnel of this.#open.keys()) if (tunnel.lastActiveAt < latest) this.#close(tunnel, IDLE);
  }

  /** @param tunnels those of one secret and address */
  async #closeUnlessValid(tunnels: readonly [Tunnel, Credential][]): Promise<void> {
    const [[, credential]] = tunnels as [[Tunnel, Credential]];
    // While key data cannot be read, keys count as valid.
    const verdict = await this.#limiter.peek(credential).catch(() => undefined);
    if (verdict === undefined || !REFUSED.has(verdict.outcome)) return;
    for (const [tunnel] of tunnels) if (this.#open.has(tunnel)) this.#close(tunnel, INVALID);
  }

  /** Closes a WebSocket only once: a message during the closing handshake must not close it again. */
  #close(tunnel: Tunnel, why: Closing): void {
    this.#open.delete(tunnel);
    tunnel.close(...why);
  }
}
