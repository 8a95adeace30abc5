import { type IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Requests after which a connection speaks another protocol (RFC 9110 §7.8). Any other upgrade is ignored. */
export interface Upgrades {
  /** Whether a request is such an upgrade. If so, `take` must answer it. */
  areTaken(request: IncomingMessage): boolean;
  /**
   * Takes the connection over, or answers with the response, which closes it.
   * @param head the bytes after the head of the request
   */
  take(request: IncomingMessage, response: ServerResponse, socket: Socket, head: Buffer): void;
}

/** Node gives up the connection with this event and creates no response, so this creates one. */
export function takeUpgrades(server: Server, { take }: Upgrades): void {
  server.on('upgrade', (request, duplex, head) => {
    const socket = duplex as Socket;
    socket.on('error', () => socket.destroy());
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket);
    response.once('finish', () => socket.destroySoon());
    take(request, response, socket, head);
  });
}
