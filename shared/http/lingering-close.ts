import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** Limits of one lingering close, as nginx has them. A client that sends for longer, or more, may lose the answer. */
const LINGER_MS = 30_000;
const SILENCE_MS = 5_000;
const LINGER_BYTES = 67_108_864;

/** While other clients are served: 8 MB a second of all connections together. */
const TICK_MS = 5;
const BYTES_PER_TICK = 40_960;
/** Connections that are read in a tick, in turn. */
const READ_PER_TICK = 2;
/** How often the limits are checked. */
const LOOK_EVERY_MS = 50;

/** The last refused request of a connection. */
interface Refused {
  readonly request: IncomingMessage;
  readonly client: string;
}

interface Lingering extends Refused {
  readonly until: number;
  readonly upTo: number;
  read: number;
  readAt: number;
}

/**
 * Closing a connection with unread bytes resets it, and the client may lose an answer that it has not read (RFC 9112
 * §9.6). With this, a close by the server ends only its own side. It reads and drops what the client sends until the
 * client closes or a limit is reached. While other clients are served, dropped bytes are read slowly, because each
 * byte costs work.
 */
export class LingeringClose {
  readonly #refused = new WeakMap<Socket, Refused>();
  readonly #lingering = new Set<Lingering>();
  readonly #othersAreServed: (client: string) => boolean;
  /** How many bytes may be read now. A read of more makes it negative. */
  #allowed = 0;
  #ticking: NodeJS.Timeout | undefined;
  #lookedAt = 0;

  /** @param othersAreServed whether clients other than this one were served a moment ago; by default they never were */
  constructor(othersAreServed: (client: string) => boolean = () => false) {
    this.#othersAreServed = othersAreServed;
  }

  /** Makes the close of a request's connection a lingering one. A connection can bring many such requests. */
  prepare(request: IncomingMessage, client = ''): void {
    const { socket } = request;
    const isPrepared = this.#refused.has(socket);
    this.#refused.set(socket, { request, client });
    if (isPrepared) return;
    const atOnce = socket.destroySoon;
    socket.destroySoon = () => {
      // A second call, as at server stop, closes at once.
      socket.destroySoon = atOnce;
      socket.end();
      this.#add(this.#refused.get(socket) as Refused);
    };
  }

  #add({ request, client }: Refused): void {
    const now = performance.now();
    const { socket } = request;
    const { bytesRead: read } = socket;
    const one = { request, client, until: now + LINGER_MS, upTo: read + LINGER_BYTES, read, readAt: now };
    this.#lingering.add(one);
    // Node may be about to resume the socket, in two steps. Paused before that, it would go on reading.
    process.nextTick(() => process.nextTick(() => pause(request)));
    socket.once('close', () => {
      this.#lingering.delete(one);
      if (this.#lingering.size > 0) return;
      clearInterval(this.#ticking);
      this.#ticking = undefined;
    });
    this.#ticking ??= setInterval(() => this.#tick(), TICK_MS).unref();
  }

  #tick(): void {
    const now = performance.now();
    if (now - this.#lookedAt >= LOOK_EVERY_MS) {
      this.#lookedAt = now;
      for (const one of this.#lingering) endIfOver(one, now);
    }
    this.#allowed = Math.min(this.#allowed, 0) + BYTES_PER_TICK;
    const isSlow = this.#isSlow();
    if (isSlow && this.#allowed <= 0) return;
    let left = isSlow ? READ_PER_TICK : this.#lingering.size;
    for (const one of this.#lingering) {
      if (left-- === 0) return;
      this.#lingering.delete(one);
      this.#lingering.add(one);
      this.#read(one);
    }
  }

  #isSlow(): boolean {
    for (const { client } of this.#lingering) if (this.#othersAreServed(client)) return true;
    return false;
  }

  /** Reads once: a turn of the event loop later, the connection is paused again. */
  #read(one: Lingering): void {
    const { request } = one;
    request.resume();
    request.socket.resume();
    setImmediate(() => {
      pause(request);
      const now = performance.now();
      const bytes = request.socket.bytesRead - one.read;
      one.read += bytes;
      this.#allowed -= bytes;
      if (bytes > 0) one.readAt = now;
      else if (now - one.readAt > SILENCE_MS) request.socket.destroy();
    });
  }
}

function pause(request: IncomingMessage): void {
  request.pause();
  request.socket.pause();
}

function endIfOver({ request: { socket }, until, upTo }: Lingering, now: number): void {
  if (now > until || socket.bytesRead > upTo) socket.destroy();
}
