import { type IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Requests after which a connection speaks another protocol (RFC 9110 §7.8). Any other upgrade is passed over. */
export interface Upgrades {
  /** Whether a request is one of them. What it asks of the response is then answered with `take`. */
  areTaken(request: IncomingMessage): boolean;
  /**
   * Takes the connection over, or answers with the response, which closes it.
   * @param head what came behind the head of the request
   */
  take(request: IncomingMessage, response: ServerResponse, socket: Socket, head: Buffer): void;
}

/** Node lets go of the connection with this event, and leaves the answer to us: so it gets a response of its own. */
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
