import { createHash } from 'node:crypto';
import { once } from 'node:events';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { cleanUp } from '../support/clean-up.ts';

interface Listening {
  /** The path of a Unix socket, used instead of a port. */
  readonly path?: string;
  readonly certificate?: { readonly cert: Buffer; readonly key: Buffer };
}

export type OnUpgrade = (socket: Duplex, request: IncomingMessage) => void;

/** The head of the 101 to a handshake. */
export function switching({ headers }: IncomingMessage, changed: Record<string, string> = {}): string {
  const accept = createHash('sha1').update(`${headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`);
  const own = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Accept': accept.digest('base64') };
  const lines = Object.entries({ ...own, ...changed }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 101 Switching Protocols\r\n${lines.join('')}\r\n`;
}

/**
 * Starts a core that opens WebSockets, echoes everything, and records its requests.
 * @param onUpgrade runs instead of opening a WebSocket
 */
export async function webSocketCore(onUpgrade?: OnUpgrade, { path, certificate }: Listening = {}) {
  const core = {
    handshakes: [] as IncomingMessage[],
    sockets: [] as WebSocket[],
    /** The close codes of WebSockets, in order. */
    closeCodes: [] as number[],
    /** Requests that were not handshakes. */
    requests: [] as IncomingMessage[],
  };
  const connections = new Set<Duplex>();
  const webSockets = new WebSocketServer({ noServer: true });
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    core.requests.push(request);
    response.setHeader('content-type', 'application/json').end('[]');
  };
  const server = certificate ? https.createServer(certificate, answer) : http.createServer(answer);
  server.on('connection', (socket) => {
    connections.add(socket);
    socket.once('close', () => connections.delete(socket));
  });
  server.on('upgrade', (request, socket, head) => {
    core.handshakes.push(request);
    socket.on('error', () => {});
    if (onUpgrade !== undefined) onUpgrade(socket, request);
    else webSockets.handleUpgrade(request, socket, head, echo);
  });

  function echo(webSocket: WebSocket): void {
    core.sockets.push(webSocket);
    webSocket.on('message', (data, isBinary) => webSocket.send(data, { binary: isBinary }));
    webSocket.on('close', (code) => core.closeCodes.push(code));
    webSocket.on('error', () => {});
  }

  server.listen(path === undefined ? { port: 0, host: '127.0.0.1' } : { path });
  await once(server, 'listening');
  cleanUp(() => {
    for (const socket of connections) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { ...core, url: path === undefined ? `http${certificate ? 's' : ''}://127.0.0.1:${port}` : `unix:${path}` };
}
