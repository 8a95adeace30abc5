import type { IncomingMessage } from 'node:http';
import { HttpError } from '../../shared/http/errors.ts';
import { every } from '../../shared/process/repeat.ts';
import type { Credential } from '../limiter/credential.ts';
import type { Keys } from '../stores/keys.ts';
import { CLOSE_CODES, type Tunnel } from '../upstream/tunnel.ts';

/** Whether a request asks to upgrade to WebSocket and nothing else (RFC 6455 §4.1). */
export const asksForWebSocket = ({ method, headers: { upgrade = '' } }: IncomingMessage): boolean =>
  method === 'GET' && upgrade.toLowerCase() === 'websocket';

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

/** A revoked key or secret must stop working within a second, so keys are checked twice a second. */
const LOOK_EVERY_MS = 500;

/**
 * The open WebSockets. They are closed when they are idle, when the secret that opened them is no longer valid, and
 * when the gateway stops.
 */
export class Tunnels {
  readonly #open = new Map<Tunnel, Credential>();
  readonly #keys: Pick<Keys, 'isValid'>;
  readonly #idleMs: number;
  readonly #endLooking: () => void;
  #isLooking = false;
  #stopped = false;

  constructor(keys: Pick<Keys, 'isValid'>, idleMs: number) {
    this.#keys = keys;
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
    if (this.#stopped) tunnel.close(CLOSE_CODES.goingAway);
  }

  stop(): void {
    this.#stopped = true;
    this.#endLooking();
    for (const tunnel of this.#open.keys()) tunnel.close(CLOSE_CODES.goingAway);
  }

  async #closeInvalid(): Promise<void> {
    if (this.#isLooking || this.#open.size === 0) return;
    this.#isLooking = true;
    this.#closeIdle();
    // Checks each credential once, however many WebSockets it has. The Redis client pipelines concurrent queries.
    const credentials = new Map([...this.#open.values()].map((credential) => [credential.cacheKey, credential]));
    await Promise.all([...credentials.values()].map((credential) => this.#closeUnlessValid(credential)));
    this.#isLooking = false;
  }

  #closeIdle(): void {
    const latest = performance.now() - this.#idleMs;
    for (const tunnel of this.#open.keys())
      if (tunnel.lastActiveAt < latest) this.#close(tunnel, CLOSE_CODES.goingAway);
  }

  async #closeUnlessValid({ id, digest, cacheKey }: Credential): Promise<void> {
    // This check costs the key no token. While key data cannot be read, keys count as valid.
    if (await this.#keys.isValid(id, digest).catch(() => true)) return;
    for (const [tunnel, opener] of this.#open)
      if (opener.cacheKey === cacheKey) this.#close(tunnel, CLOSE_CODES.policyViolation);
  }

  /** Closes a WebSocket only once: a message during the closing handshake must not close it again. */
  #close(tunnel: Tunnel, code: number): void {
    this.#open.delete(tunnel);
    tunnel.close(code);
  }
}
