import type { Redis } from 'ioredis';

const PARTS = 5;

/**
 * Closes a connection without an answer for `socketTimeout`: it is dead, whatever TCP says. This replaces the library's
 * own timer, which also closes good connections after a stall of this process: it fires before the answer in the socket
 * is read. Here a stall counts as one part of the time.
 */
export function endWhenSilent(redis: Redis): void {
  const { socketTimeout: ms = Infinity } = redis.options;
  Object.defineProperty(redis, 'setSocketTimeout', { value: () => {} });
  redis.on('connect', () => {
    const { stream } = redis;
    let bytesRead = 0;
    let silentParts = 0;
    const timer = setInterval(() => {
      const isSilent = redis.commandQueue.length > 0 && stream.bytesRead === bytesRead;
      silentParts = isSilent ? silentParts + 1 : 0;
      bytesRead = stream.bytesRead;
      if (silentParts > PARTS) stream.destroy(new Error(`No answer in ${ms} ms.`));
    }, ms / PARTS).unref();
    stream.once('close', () => clearInterval(timer));
  });
}
