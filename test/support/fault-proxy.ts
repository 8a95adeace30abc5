import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { cleanUp } from './clean-up.ts';

/** What is wrong with the network. Everything but `half-open` takes hold at once of connections that are open, and of new ones. */
export type Fault =
  | { readonly kind: 'pass' }
  /** Requests arrive at once; each piece of a reply arrives so much later, in order. */
  | { readonly kind: 'delay'; readonly ms: number }
  /** Every connection is reset, new ones as soon as they are there. */
  | { readonly kind: 'reset' }
  /** Nothing gets through in either direction and nobody is told. What was sent arrives when it is over, as TCP has it. */
  | { readonly kind: 'black-hole' }
  /** Connections that are open now stay open and are dead for good; new ones pass. */
  | { readonly kind: 'half-open' }
  /** Replies arrive a few bytes at a time. */
  | { readonly kind: 'trickle'; readonly bytes: number; readonly everyMs: number }
  /** Each connection is reset after so many bytes of its next reply. */
  | { readonly kind: 'cut-reply'; readonly afterBytes: number };

export interface FaultProxy {
  /** The target's URL, with this proxy in its place. */
  readonly url: string;
  /** Connections that are open. */
  readonly connections: number;
  set(fault: Fault): void;
}

/** A TCP proxy in front of `target`, a URL with a port, that fails as it is told. Gone after the test, or after its file. */
export async function startFaultProxy(target: string): Promise<FaultProxy> {
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
    url: url.href.replace(/\/$/, ''),
    get connections() {
      return lines.size;
    },
    set(next) {
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
  /** Replies go out one after the other, whatever holds up the first of them. */
  #sent: Promise<void> = Promise.resolve();

  constructor(client: Socket, server: Socket, fault: () => Fault) {
    this.#client = client;
    this.#server = server;
    this.#fault = fault;
    for (const socket of [client, server]) socket.on('error', () => this.reset());
    client.on('data', (chunk) => void server.write(chunk));
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

  async #reply(chunk: Buffer, arrivedAt: number): Promise<void> {
    const fault = this.#fault();
    if (fault.kind === 'delay') await sleep(Math.max(0, arrivedAt + fault.ms - performance.now()));
    if (fault.kind === 'trickle') return await this.#trickle(chunk);
    if (fault.kind !== 'cut-reply') return void this.#client.write(chunk);
    this.#client.write(chunk.subarray(0, fault.afterBytes), () => this.reset());
  }

  /** A fault that ends in the middle lets the rest go at once. */
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
