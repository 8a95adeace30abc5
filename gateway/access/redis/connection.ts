import { setTimeout as sleep } from 'node:timers/promises';
import { type Cluster, Redis, type RedisOptions } from 'ioredis';
import type { Logger } from '../../../shared/logger.ts';
import { loadOnConnect } from './script.ts';
import { endWhenSilent } from './silence.ts';
import { TlsConnector } from './tls.ts';

/** How to connect to a Redis. */

export type RedisConnection = Redis | Cluster;

export const CONNECT_TIMEOUT_MS = 300;
/** A connection that owes an answer for so long is dead, whatever TCP says of it. */
const SILENT_MS = 500;
const LONGEST_RETRY_MS = 200;
/** How long a start waits for a Redis, unless it is told otherwise. */
export const START_MS = 3_000;
/** ioredis would wait for as long as Redis guesses that its loading still takes, which is whole seconds. */
const LOADING_RETRY_MS = 100;

export const retryDelayMs = (attempt: number): number => Math.min(50 * attempt, LONGEST_RETRY_MS);

/**
 * Options of every connection. Everything about it fails fast, and nothing is ever queued or sent twice, because a
 * decision that is repeated is a request that is charged twice.
 * @param timeoutMs after which a command is given up; it may still run
 */
export const failFast = (timeoutMs: number) =>
  ({
    lazyConnect: true,
    disableClientInfo: true,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    commandTimeout: timeoutMs,
    connectTimeout: CONNECT_TIMEOUT_MS,
    socketTimeout: Math.max(SILENT_MS, 2 * timeoutMs),
    maxLoadingRetryTime: LOADING_RETRY_MS,
  }) satisfies RedisOptions;

/** What every connection does from when it is made: to be called before it connects. */
export function prepare(redis: Redis): void {
  endWhenSilent(redis);
  loadOnConnect(redis);
}

/**
 * Connects to one Redis, or goes on trying in the background: a gateway starts without its Redis.
 * @param timeoutMs after which a command is given up; it may still run
 * @param ca certificates for rediss:// in PEM; those of Node when undefined
 * @param startMs how long to wait for it at most
 */
export async function connectRedis(
  url: string,
  timeoutMs: number,
  logger: Logger,
  ca?: string,
  startMs = START_MS,
): Promise<Redis> {
  const redis = new Redis(url, {
    ...failFast(timeoutMs),
    enableOfflineQueue: false,
    retryStrategy: retryDelayMs,
    ...(url.startsWith('rediss:') && { tls: ca === undefined ? {} : { ca }, Connector: TlsConnector }),
  });
  prepare(redis);
  tellOnce(redis, logger);
  await Promise.race([redis.connect().catch(() => undefined), sleep(startMs, undefined, { ref: false })]);
  if (redis.status === 'ready') await checkDatabase(redis);
  return redis;
}

/** Where a server has no such database, ioredis says so in passing and goes on with database 0, which is somebody else's. */
export async function checkDatabase(redis: Redis): Promise<void> {
  const wanted = redis.options.db ?? 0;
  if (wanted === 0 || (await redis.client('INFO')).includes(` db=${wanted} `)) return;
  redis.disconnect();
  throw new Error(`REDIS_URL: this Redis has no database ${wanted}.`);
}

/** ioredis reports every failed attempt; a person wants to know that it went away and that it came back. */
export function tellOnce(redis: RedisConnection, logger: Logger, onAway: () => unknown = () => undefined): void {
  let away = false;
  const isAway = (reason: string) => {
    if (away) return;
    away = true;
    logger.error({ reason }, 'redis is away');
    onAway();
  };
  redis.on('error', (error: Error & { lastNodeError?: Error }) => isAway((error.lastNodeError ?? error).message));
  redis.on('reconnecting', () => isAway('The connection was closed.'));
  redis.on('ready', () => {
    if (away) logger.info('redis is back');
    away = false;
  });
}
