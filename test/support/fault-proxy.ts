import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { cleanUp } from './clean-up.ts';

/** A network fault. All except `half-open` affect open connections too, immediately. */
export type Fault =
  | { readonly kind: 'pass' }
  /** Requests arrive without delay. Each piece of a reply is delayed by `ms`, in order. */
  | { readonly kind: 'delay'; readonly ms: number }
  /** Requests arrive without delay. Replies wait for the end of the fault, or only those on connections that send `to`. */
  | { readonly kind: 'hold'; readonly to?: string }
  /** Every connection is reset. New ones are reset as soon as they are open. */
  | { readonly kind: 'reset' }
  /**
   * Nothing gets through in either direction, and neither side is notified. Data sent during the fault arrives when it
   * ends, as with TCP.
   */
  | { readonly kind: 'black-hole' }
  /** Connections that are open now transfer nothing any more, but stay open. New ones work. */
  | { readonly kind: 'half-open' }
  /** Replies arrive a few bytes at a time. */
  | { readonly kind: 'trickle'; readonly bytes: number; readonly everyMs: number }
  /** Each connection is reset after this many bytes of its next reply, or of its next reply to the command `to`. */
  | { readonly kind: 'cut-reply'; readonly afterBytes: number; readonly to?: string }
  /** Each connection is closed after its next reply that contains `after`, with `last` in the same piece. */
  | { readonly kind: 'end'; readonly after: Buffer; readonly last: Buffer };

export type FaultProxy = Awaited<ReturnType<typeof startFaultProxy>>;

/**
 * Starts a TCP proxy in front of `target`, a URL with a port, which fails on command. It is closed after the test, or
 * after the test file.
 */
export async function startFaultProxy(target: string) {
  const { hostname, port } = new URL(target);
  const lines = new Set<Line>();
  let fault: Fault = { kind: 'pass' };
  const server = net.createServer({ noDelay: true }, (client) => {
    const line = new Line(client, net.connect({ host: hostname, port: Number(port), noDelay: true }), () => fault);
    lines.add(line);
    client.once('close', () => lines.delete(line));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUp(() => {
    for (const line of lines) line.reset();
    server.close();
  });
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  return {
    /** The target's URL with this proxy's address. */
    url: url.href.replace(/\/$/, ''),
    /** The number of open connections. */
    get connections(): number {
      return lines.size;
    },
    set(next: Fault): void {
      fault = next;
      for (const line of lines) line.feel(next);
    },
  };
}

/** One connection through the proxy. */
class Line {
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #fault: () => Fault;
  #isDead = false;
  /** Whether the connection has sent the command to which the fault is limited. */
  #isMeant = false;
  /** Resolves when the previous reply has been sent, because replies are sent in order. */
  #sent: Promise<void> = Promise.resolve();

  constructor(client: Socket, server: Socket, fault: () => Fault) {
    this.#client = client;
    this.#server = server;
    this.#fault = fault;
    for (const socket of [client, server]) socket.on('error', () => this.reset());
    client.on('data', (chunk) => {
      const now = fault();
      if ('to' in now && now.to !== undefined) this.#isMeant ||= chunk.includes(now.to);
      server.write(chunk);
    });
    client.on('end', () => server.end());
    client.on('close', () => server.destroy());
    server.on('data', (chunk) => {
      const arrivedAt = performance.now();
      this.#sent = this.#sent.then(() => this.#reply(chunk, arrivedAt));
    });
    server.on('end', () => {
      this.#sent = this.#sent.then(() => void client.end());
    });
    if (fault().kind !== 'half-open') this.feel(fault());
  }

  feel({ kind }: Fault): void {
    if (kind === 'reset') this.reset();
    if (kind === 'half-open') this.#isDead = true;
    const isSilent = this.#isDead || kind === 'black-hole';
    for (const socket of [this.#client, this.#server]) isSilent ? socket.pause() : socket.resume();
  }

  reset(): void {
    this.#client.resetAndDestroy();
    this.#server.destroy();
  }

  get #isHeld(): boolean {
    const fault = this.#fault();
    return fault.kind === 'hold' && (fault.to === undefined || this.#isMeant);
  }

  async #reply(chunk: Buffer, arrivedAt: number): Promise<void> {
    while (this.#isHeld && !this.#client.destroyed) await sleep(5);
    const fault = this.#fault();
    if (fault.kind === 'delay') await sleep(Math.max(0, arrivedAt + fault.ms - performance.now()));
    if (fault.kind === 'trickle') return await this.#trickle(chunk);
    if (fault.kind === 'end' && chunk.includes(fault.after))
      return void this.#client.end(Buffer.concat([chunk, fault.last]));
    const isCut = fault.kind === 'cut-reply' && (fault.to === undefined || this.#isMeant);
    if (!isCut) return void this.#client.write(chunk);
    this.#client.write(chunk.subarray(0, fault.afterBytes), () => this.reset());
  }

  /** If the fault ends before the whole chunk is sent, the rest is sent at once. */
  async #trickle(chunk: Buffer): Promise<void> {
    let rest = chunk;
    for (let fault = this.#fault(); fault.kind === 'trickle' && rest.length > 0; fault = this.#fault()) {
      this.#client.write(rest.subarray(0, fault.bytes));
      rest = rest.subarray(fault.bytes);
      await sleep(fault.everyMs);
    }
    this.#client.write(rest);
  }
}
