import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { cleanUp } from '../support/clean-up.ts';

/** A core that opens WebSockets, sends everything back, and keeps what it was asked. */
export interface WebSocketCore {
  readonly url: string;
  readonly handshakes: IncomingMessage[];
  readonly sockets: WebSocket[];
  /** The code with which each WebSocket was closed, in order. */
  readonly closeCodes: number[];
  /** Requests that were no handshakes. */
  readonly requests: IncomingMessage[];
}

/** @param onUpgrade what happens instead of opening a WebSocket */
export async function webSocketCore(onUpgrade?: (socket: Duplex) => void): Promise<WebSocketCore> {
  const core: Omit<WebSocketCore, 'url'> = { handshakes: [], sockets: [], closeCodes: [], requests: [] };
  const connections = new Set<Duplex>();
  const webSockets = new WebSocketServer({ noServer: true });
  const server = http.createServer((request, response) => {
    core.requests.push(request);
    response.end('[]');
  });
  server.on('connection', (socket) => {
    connections.add(socket);
    socket.once('close', () => connections.delete(socket));
  });
  server.on('upgrade', (request, socket, head) => {
    core.handshakes.push(request);
    socket.on('error', () => {});
    if (onUpgrade !== undefined) onUpgrade(socket);
    else webSockets.handleUpgrade(request, socket, head, echo);
  });

  function echo(webSocket: WebSocket): void {
    core.sockets.push(webSocket);
    webSocket.on('message', (data, isBinary) => webSocket.send(data, { binary: isBinary }));
    webSocket.on('close', (code) => core.closeCodes.push(code));
    webSocket.on('error', () => {});
  }

  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUp(() => {
    for (const socket of connections) socket.destroy();
    server.close();
  });
  return { ...core, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}
