import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import tls from 'node:tls';
import { cleanUp } from './clean-up.ts';

/** A connection on which a test writes its own bytes. */
export interface RawClient {
  readonly socket: Socket;
  /** All bytes received so far, as latin1. */
  received(): string;
  /** Resolves when the server has closed its side too. */
  readonly closed: Promise<unknown>;
}

/**
 * Connects to a server by its URL, over TLS for https. Each side is closed independently, so the answer can still be
 * read after `end()`.
 * @param ca trusted certificates
 * @param from the address to connect from
 */
export async function connectRaw(url: string, { ca, from }: { ca?: Buffer; from?: string } = {}): Promise<RawClient> {
  const { protocol, hostname, port } = new URL(url);
  const to = { host: hostname, port: Number(port), allowHalfOpen: true, ...(from && { localAddress: from }) };
  const socket = protocol === 'https:' ? tls.connect({ ...to, ...(ca && { ca }) }) : net.connect(to);
  cleanUp(() => socket.destroy());
  let received = '';
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1');
  });
  socket.on('error', () => {});
  const closed = new Promise<void>((resolve) => socket.once('end', resolve).once('close', () => resolve()));
  await once(socket, protocol === 'https:' ? 'secureConnect' : 'connect');
  return { socket, received: () => received, closed };
}
