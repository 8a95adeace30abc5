import net, { type Socket } from 'node:net';
import { cleanUp } from './clean-up.ts';

/** Clients that send an endless body. */

const CHUNK = Buffer.from(`100000\r\n${'x'.repeat(0x100000)}\r\n`);

/**
 * Opens a connection and sends the head of a chunked POST without a key. Answers are read and discarded. The server may
 * close its side first.
 */
export function beginPost(url: string): Socket {
  const { hostname, port } = new URL(url);
  const socket = net.connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  cleanUp(() => socket.destroy());
  socket.on('error', () => {});
  socket.resume();
  socket.write('POST /v1/pets HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n');
  return socket;
}

/** Sends chunks of a megabyte for as long as the connection accepts them. */
export function sendOn(socket: Socket): void {
  if (socket.writable) socket.write(CHUNK, () => sendOn(socket));
}
