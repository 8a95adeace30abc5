import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** The unfinished answers on each connection, in the order of their requests. */
type Answering = Iterable<readonly [Socket, { readonly answers: readonly ServerResponse[] }]>;

/** Bytes of answers that the client has not read. The first answer's bytes are in the socket's buffer. */
const unreadBytes = (socket: Socket, [, ...behind]: readonly ServerResponse[]): number =>
  behind.reduce((total, { writableLength }) => total + writableLength, socket.writableLength);

/** Cuts the connections with the most unread bytes until all together have at most `mostBytes`. */
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
