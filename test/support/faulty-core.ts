import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { cleanUp } from './clean-up.ts';

/**
 * Starts a core that answers with bytes from the test. Calls `onRequest` for each complete request, after its body. A
 * connection can carry many requests, which need not wait for earlier answers.
 */
export function faultyCore(onRequest: (socket: Socket, head: string) => void): Promise<string> {
  return bareCore((socket) => {
    let received = '';
    socket.on('data', (chunk) => {
      received += chunk.toString('latin1');
      for (let end = endOfRequest(received); end !== undefined; end = endOfRequest(received)) {
        const request = received.slice(0, end);
        received = received.slice(end);
        onRequest(socket, request);
      }
    });
  });
}

/** Starts a core that only accepts connections. The test handles them. */
export async function bareCore(onConnection: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
    onConnection(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUp(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** The end of the first request in the string, or undefined while that request is incomplete. */
function endOfRequest(received: string): number | undefined {
  const head = received.indexOf('\r\n\r\n');
  if (head === -1) return undefined;
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(received.slice(0, head))?.[1] ?? 0);
  const end = head + 4 + length;
  return end <= received.length ? end : undefined;
}

/** Starts a core that answers one request, once the test releases the answer. */
export async function waitingCore() {
  const arrived = Promise.withResolvers<() => void>();
  const url = await faultyCore((socket) => arrived.resolve(() => void socket.write(OK)));
  return { url, arrived: arrived.promise };
}

export const OK = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]';

/** A valid answer to a request, with its X-Request-Id, as our core sends it. */
export const okTo = (head: string): string => withIdOf(head, OK);

/** An answer with the X-Request-Id of its request. */
export function withIdOf(head: string, answer: string): string {
  const id = /\r\nX-Request-Id: ([^\r]*)/i.exec(head)?.[1];
  return id === undefined ? answer : answer.replace('\r\n', `\r\nX-Request-Id: ${id}\r\n`);
}

/** The client's request id: the id that the core received, without the number of the attempt. */
export const clientIdOf = (receivedId: string): string => receivedId.replace(/\.\d+$/, '');

/** Starts a core that answers every request with an empty list and records the heads. */
export async function listeningCore(): Promise<{ url: string; heads: string[] }> {
  const heads: string[] = [];
  const url = await faultyCore((socket, head) => {
    heads.push(head);
    socket.write(okTo(head));
  });
  return { url, heads };
}

/** Starts a core that answers `ratePerSecond` requests a second, in order of arrival. The others wait. */
export async function slowCore(ratePerSecond: number): Promise<string> {
  const waiting: [Socket, string][] = [];
  let answered = 0;
  const startedAt = performance.now();
  const serving = setInterval(() => {
    const due = Math.floor(((performance.now() - startedAt) / 1_000) * ratePerSecond);
    for (const [socket, head] of waiting.splice(0, due - answered)) socket.write(okTo(head));
    // After idle time, the rate is not exceeded.
    answered = due;
  }, 5);
  cleanUp(() => clearInterval(serving));
  return await faultyCore((socket, head) => void waiting.push([socket, head]));
}
