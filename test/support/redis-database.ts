import { Redis, type RedisOptions } from 'ioredis';
import { inject } from 'vitest';
import { connectRedis } from '../../gateway/stores/redis/connection.ts';
import { cleanUp } from './clean-up.ts';
import { readableLog } from './log.ts';
import { type Directives, type RedisServer, startRedisServer } from './redis.ts';
import { targetOf } from './redis-target.ts';

/** Starts a server that is stopped after the test, or after the test file. */
export async function ownRedis(directives?: Directives): Promise<RedisServer> {
  const server = await startRedisServer(directives);
  cleanUp(server.stop);
  return server;
}

/** Opens a connection for one test. Connection errors that the test causes do not fail it. */
export function connectionTo(url: string, options: Omit<RedisOptions, 'replyMapping'> = {}): Redis {
  const redis = new Redis(url, options);
  redis.on('error', () => {});
  cleanUp(() => redis.disconnect());
  return redis;
}

/** Connects as the gateway does. Retries, because an attempt can fail on a busy machine. */
export async function connectedRedis(url: string, timeoutMs = 5_000): Promise<Redis> {
  const redis = await connectRedis(targetOf('single', url, { timeoutMs }), readableLog().logger);
  cleanUp(() => redis.disconnect());
  if (redis.status !== 'ready') await new Promise<void>((resolve) => redis.once('ready', resolve));
  return redis;
}

/** Counts the commands that a connection sends from now on. @returns a function that returns the count by name */
export function countCommands(redis: Redis): (name: string) => number {
  const sent: string[] = [];
  const send = redis.sendCommand.bind(redis);
  redis.sendCommand = (command, ...more) => {
    sent.push(command.name);
    return send(command, ...more);
  };
  return (wanted) => sent.filter((name) => name === wanted).length;
}

/** Returns an empty database of the Redis of the test run, for one test file. Parallel workers use different ones. */
export async function emptyDatabase(): Promise<{ url: string; redis: Redis }> {
  const url = `${inject('redisUrl')}/${process.env.VITEST_POOL_ID ?? '0'}`;
  const redis = new Redis(url);
  if ((await redis.dbsize()) > 0 && process.env.REDIS_URL !== undefined) {
    redis.disconnect();
    throw new Error(`${url} is not empty; tests do not touch existing data.`);
  }
  await redis.flushdb();
  cleanUp(async () => {
    await redis.flushdb();
    redis.disconnect();
  });
  return { url, redis };
}
