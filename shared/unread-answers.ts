import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** The answers that are being made on each connection, in the order in which they were asked for. */
type Answering = Iterable<readonly [Socket, { readonly answers: readonly ServerResponse[] }]>;

/** Of the answers on a connection, what is made and not yet taken by its reader; the first one's share is in the socket. */
const unreadBytes = (socket: Socket, [, ...behind]: readonly ServerResponse[]): number =>
  behind.reduce((total, { writableLength }) => total + writableLength, socket.writableLength);

/** Cuts the connections with the most unread bytes until all together have at most so many. */
export function cutMostUnread(connections: Answering, mostBytes: number, cut: (socket: Socket) => void): void {
  const unread = Array.from(connections, ([socket, { answers }]) => ({ socket, bytes: unreadBytes(socket, answers) }));
  let total = unread.reduce((sum, { bytes }) => sum + bytes, 0);
  if (total <= mostBytes) return;
  for (const { socket, bytes } of unread.sort((one, other) => other.bytes - one.bytes)) {
    cut(socket);
    total -= bytes;
    if (total <= mostBytes) return;
  }
}
