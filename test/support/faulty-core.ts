import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { cleanUp } from './clean-up.ts';

/**
 * A core as it is when it fails, byte for byte as the test says. `onRequest` is called once a connection has sent the head
 * of a request, with that head and whatever came with it.
 */
export async function faultyCore(onRequest: (socket: Socket, head: string) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    let received = '';
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
    socket.on('data', (chunk) => {
      received += chunk.toString('latin1');
      if (!received.includes('\r\n\r\n')) return;
      const head = received;
      received = '';
      onRequest(socket, head);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUp(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

export const OK = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]';

/** A core that answers every request with an empty list, and keeps the heads of those that reached it. */
export async function listeningCore(): Promise<{ url: string; heads: string[] }> {
  const heads: string[] = [];
  const url = await faultyCore((socket, head) => {
    heads.push(head);
    socket.write(OK);
  });
  return { url, heads };
}
