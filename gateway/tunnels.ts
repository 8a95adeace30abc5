import { endOf } from './access/keys.ts';
import type { KeyStore } from './access/limiter.ts';
import { CLOSE_CODES, type Tunnel } from './upstream/tunnel.ts';

/** Twice within the second in which a revoked key is to open nothing any more. */
const LOOK_EVERY_MS = 500;

/** The WebSockets that are open: closed when nothing moves on them, when their key is good no more, and when we stop. */
export class Tunnels {
  /** With the id of the key that opened it. */
  readonly #open = new Map<Tunnel, string>();
  readonly #keys: Pick<KeyStore, 'get' | 'now'>;
  readonly #idleMs: number;
  readonly #looking: NodeJS.Timeout;
  #isLooking = false;
  #stopped = false;

  constructor(keys: Pick<KeyStore, 'get' | 'now'>, idleMs: number) {
    this.#keys = keys;
    this.#idleMs = idleMs;
    this.#looking = setInterval(() => this.#look(), LOOK_EVERY_MS).unref();
  }

  /** True once all are closed for good. */
  get stopped(): boolean {
    return this.#stopped;
  }

  add(tunnel: Tunnel, keyId: string): void {
    this.#open.set(tunnel, keyId);
    tunnel.onceClosed(() => this.#open.delete(tunnel));
    if (this.#stopped) tunnel.close(CLOSE_CODES.goingAway);
  }

  stop(): void {
    this.#stopped = true;
    clearInterval(this.#looking);
    for (const tunnel of this.#open.keys()) tunnel.close(CLOSE_CODES.goingAway);
  }

  async #look(): Promise<void> {
    if (this.#isLooking || this.#open.size === 0) return;
    this.#isLooking = true;
    this.#closeIdle();
    // Each key once, however many tunnels it has; the client library sends what is asked for at once together.
    await Promise.all([...new Set(this.#open.values())].map((keyId) => this.#closeUnless(keyId)));
    this.#isLooking = false;
  }

  #closeIdle(): void {
    const latest = performance.now() - this.#idleMs;
    for (const tunnel of this.#open.keys())
      if (tunnel.lastActiveAt < latest) this.#close(tunnel, CLOSE_CODES.goingAway);
  }

  async #closeUnless(keyId: string): Promise<void> {
    if (await this.#isGood(keyId)) return;
    for (const [tunnel, id] of this.#open) if (id === keyId) this.#close(tunnel, CLOSE_CODES.policyViolation);
  }

  /** Costs the key nothing. While keys cannot be looked at, those that were good still are. */
  async #isGood(keyId: string): Promise<boolean> {
    try {
      const entry = await this.#keys.get(keyId);
      if (entry === undefined) return false;
      return endOf(entry.record, await this.#keys.now()) === undefined;
    } catch {
      return true;
    }
  }

  /** Once: what it sends while it closes is no reason to close it again. */
  #close(tunnel: Tunnel, code: number): void {
    this.#open.delete(tunnel);
    tunnel.close(code);
  }
}
