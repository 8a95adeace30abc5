import type { Socket } from 'node:net';

/** Limits of the lingering close. A client that sends longer or more may lose the answer. */
const LINGER_MS = 5_000;
const LINGER_BYTES = 67_108_864;
const LOOK_EVERY_MS = 50;

/**
 * Closing a connection with unread bytes resets it, and the client may lose an answer that it has not read (RFC 9112
 * §9.6). With this, a close by the server ends only its own side. It reads and drops what the client sends until the
 * client closes or a limit is reached.
 */
export function lingerOnClose(socket: Socket): void {
  const atOnce = socket.destroySoon;
  socket.destroySoon = () => {
    // A second call, as at server stop, closes at once.
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
