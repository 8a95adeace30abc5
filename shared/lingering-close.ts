import type { Socket } from 'node:net';

/** Whoever sends on for longer than that, or more than that, may lose the answer. */
const LINGER_MS = 5_000;
const LINGER_BYTES = 67_108_864;
const LOOK_EVERY_MS = 50;

/**
 * A connection that is closed with bytes unread is reset, and its client can lose an answer that it has not read (RFC 9112
 * §9.6). After this, when the server closes the connection, it ends its own side only, and goes on reading what the client
 * sends, to drop it, until the client closes or one of the bounds is reached.
 */
export function lingerOnClose(socket: Socket): void {
  const atOnce = socket.destroySoon;
  socket.destroySoon = () => {
    // Asked for once more, as when the server stops, it closes.
    socket.destroySoon = atOnce;
    socket.end();
    const until = performance.now() + LINGER_MS;
    const upTo = socket.bytesRead + LINGER_BYTES;
    const looking = setInterval(() => {
      if (performance.now() > until || socket.bytesRead > upTo) socket.destroy();
    }, LOOK_EVERY_MS).unref();
    socket.once('close', () => clearInterval(looking));
  };
}
