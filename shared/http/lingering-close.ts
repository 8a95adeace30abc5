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

interface Lingering {
  readonly socket: Socket;
  readonly client: string;
  readonly until: number;
  readonly upTo: number;
  read: number;
  readAt: number;
}

/**
 * Closing a connection with unread bytes resets it, and the client may lose an answer that it has not read (RFC 9112
 * §9.6). So the server ends only its own side. What a client sends on is read and dropped until the client closes or a
 * limit is reached. While other clients are served, dropped bytes are read slowly, because each byte costs work.
 */
export class LingeringClose {
  /** Connections that are expected to bring more, and whose fault that is. */
  readonly #expected = new WeakMap<Socket, string>();
  readonly #lingering = new Map<Socket, Lingering>();
  readonly #othersAreServed: (client: string) => boolean;
  /** How many bytes may be read now. A read of more makes it negative. */
  #allowed = 0;
  #ticking: NodeJS.Timeout | undefined;
  #lookedAt = 0;

  /** @param othersAreServed whether clients other than this one were served a moment ago; by default they never were */
  constructor(othersAreServed: (client: string) => boolean = () => false) {
    this.#othersAreServed = othersAreServed;
  }

  /** Notes that a connection brings more than is wanted. If it is being closed, that is read slowly from now on. */
  expect(socket: Socket, client = ''): void {
    this.#expected.set(socket, client);
    if (socket.writableEnded) this.#add(socket, client);
  }

  /** Ends the server's side of a connection. The other side has some seconds to do the same. */
  close(socket: Socket): void {
    socket.end();
    const client = this.#expected.get(socket);
    if (client === undefined) socket.setTimeout(SILENCE_MS, () => socket.destroy());
    else this.#add(socket, client);
  }

  #add(socket: Socket, client: string): void {
    if (this.#lingering.has(socket)) return;
    const now = performance.now();
    const { bytesRead: read } = socket;
    this.#lingering.set(socket, {
      socket,
      client,
      until: now + LINGER_MS,
      upTo: read + LINGER_BYTES,
      read,
      readAt: now,
    });
    // Node may be about to resume the socket, in two steps. Paused before that, it would go on reading.
    process.nextTick(() => process.nextTick(() => socket.pause()));
    socket.once('close', () => {
      this.#lingering.delete(socket);
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
      for (const one of this.#lingering.values()) endIfOver(one, now);
    }
    this.#allowed = Math.min(this.#allowed, 0) + BYTES_PER_TICK;
    const isSlow = this.#isSlow();
    if (isSlow && this.#allowed <= 0) return;
    let left = isSlow ? READ_PER_TICK : this.#lingering.size;
    for (const [socket, one] of this.#lingering) {
      if (left-- === 0) return;
      this.#lingering.delete(socket);
      this.#lingering.set(socket, one);
      this.#read(one);
    }
  }

  #isSlow(): boolean {
    for (const { client } of this.#lingering.values()) if (this.#othersAreServed(client)) return true;
    return false;
  }

  /** Reads once: a turn of the event loop later, the connection is paused again. */
  #read(one: Lingering): void {
    const { socket } = one;
    socket.resume();
    setImmediate(() => {
      socket.pause();
      const now = performance.now();
      const bytes = socket.bytesRead - one.read;
      one.read += bytes;
      this.#allowed -= bytes;
      if (bytes > 0) one.readAt = now;
      else if (now - one.readAt > SILENCE_MS) socket.destroy();
    });
  }
}

function endIfOver({ socket, until, upTo }: Lingering, now: number): void {
  if (now > until || socket.bytesRead > upTo) socket.destroy();
}
