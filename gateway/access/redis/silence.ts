import type { Redis } from 'ioredis';

const PARTS = 5;

/**
 * Ends a connection that owes an answer for `ms`: it is dead, whatever TCP says of it. The library's own timer would end a
 * good one too, after a stall of this process, since it fires before the answer in the socket is read.
 */
export function endWhenSilent(redis: Redis, ms: number): void {
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
