import { Redis } from 'ioredis';
import { inject } from 'vitest';
import { cleanUp } from './clean-up.ts';

/** An empty database of the run's Redis for one test file: workers run beside each other, each in a database of its own. */
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
