import { Redis } from 'ioredis';
import { inject } from 'vitest';
import { connectRedis } from '../../gateway/stores/redis/connection.ts';
import { cleanUp } from './clean-up.ts';
import { readableLog } from './log.ts';

/** Connects as the gateway does. On a busy machine attempts can fail; this waits for one that does not. */
export async function connectedRedis(url: string, timeoutMs = 5_000): Promise<Redis> {
  const redis = await connectRedis(url, { timeoutMs, logger: readableLog().logger });
  cleanUp(() => redis.disconnect());
  if (redis.status !== 'ready') await new Promise<void>((resolve) => redis.once('ready', resolve));
  return redis;
}

/** An empty database of the run's Redis for one test file. Parallel workers use different databases. */
export async function emptyDatabase(): Promise<{ url: string; redis: Redis }> {
  const url = `${inject('redisUrl')}/${process.env.VITEST_POOL_ID ?? '0'}`;
  const redis = new Redis(url);
  if ((await redis.dbsize()) > 0 && process.env.REDIS_URL !== undefined) {
    redis.disconnect();
    throw new Error(`${url} is not empty; tests do not touch data that is not theirs.`);
  }
  await redis.flushdb();
  cleanUp(async () => {
    await redis.flushdb();
    redis.disconnect();
  });
  return { url, redis };
}
