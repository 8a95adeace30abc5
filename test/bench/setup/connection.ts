import { once } from 'node:events';
import net, { type Socket } from 'node:net';

/** Opens a connection to the server at a URL. */
export async function connectTo(url: string): Promise<Socket> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}
