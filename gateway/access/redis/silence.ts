import type { Redis } from 'ioredis';

const PARTS = 5;

/**
 * Ends a connection that owes an answer for as long as `socketTimeout`: it is dead, whatever TCP says of it. In place of the
 * library's own timer, which ends a good one too after a stall of this process: it fires before the answer in the socket is
 * read. A stall counts as one part of the time here.
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
