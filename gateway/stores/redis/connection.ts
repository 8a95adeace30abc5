import { setTimeout as sleep } from 'node:timers/promises';
import { Redis, type RedisOptions } from 'ioredis';
import type { Logger } from '../../../shared/process/logger.ts';
import { loadOnConnect, type RedisConnection } from './calls.ts';
import { addresses, type Credentials, credentialsOf, START_MS, tlsOptions } from './target.ts';
import { logRefusedTls, TlsConnector } from './tls.ts';

const DEFAULT_PORT = 6379;
export const CONNECT_TIMEOUT_MS = 300;
/** A connection without an answer for this long is dead, even if TCP has not noticed. */
const SILENT_MS = 500;
const LONGEST_RETRY_MS = 100;
/** Without this, ioredis waits for Redis' own estimate of its loading time, in whole seconds. */
const LOADING_RETRY_MS = 100;

export const retryDelayMs = (attempt: number): number => Math.min(50 * attempt, LONGEST_RETRY_MS);

/** A retry strategy that uses the credentials in force at each attempt. */
export function retryAs(redis: Redis, credentials: () => Credentials, attempt: number): number {
  Object.assign(redis.options, credentials());
  return retryDelayMs(attempt);
}

/**
 * Options of every connection. Everything fails fast, and nothing is queued or sent twice: a repeated decision would
 * charge a request twice.
 * @param timeoutMs the timeout of a command, which may still run afterwards
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

/** Adds the listeners that every connection needs. Call this before it connects. */
export function prepare(redis: Redis): void {
  endWhenSilent(redis);
  loadOnConnect(redis);
}

interface ConnectOptions {
  readonly timeoutMs: number;
  readonly logger: Logger;
  /** The present certificates for rediss:// in PEM. Node's own apply if undefined. */
  readonly ca?: (() => string) | undefined;
  /** How long a start waits for the connection at most. */
  readonly startMs?: number;
  /** The present credentials, if they can change while the gateway runs. */
  readonly credentials?: () => Credentials;
}

/** Connects to one Redis, or keeps trying in the background: a gateway starts without its Redis. */
export async function connectRedis(
  url: string,
  { timeoutMs, logger, ca, startMs = START_MS, credentials = () => credentialsOf(url) }: ConnectOptions,
): Promise<Redis> {
  const tls = url.startsWith('rediss:') ? tlsOptions(ca) : undefined;
  const redis: Redis = new Redis(url, {
    ...failFast(timeoutMs),
    enableOfflineQueue: false,
    retryStrategy: (attempt) => retryAs(redis, credentials, attempt),
    ...(tls && { tls, Connector: TlsConnector }),
  });
  prepare(redis);
  logOutages(redis, logger, () => logRefusedTls(addresses({ urls: [url] }, DEFAULT_PORT), tls, logger));
  await Promise.race([redis.connect().catch(() => undefined), sleep(startMs, undefined, { ref: false })]);
  if (redis.status === 'ready') await checkDatabase(redis);
  return redis;
}

/**
 * If a server has no such database, ioredis only emits an error and continues with database 0, which belongs to others.
 */
export async function checkDatabase(redis: Redis): Promise<void> {
  const wanted = redis.options.db ?? 0;
  if (wanted === 0 || (await redis.client('INFO')).includes(` db=${wanted} `)) return;
  redis.disconnect();
  throw new Error(`REDIS_URL: this Redis has no database ${wanted}.`);
}

/** ioredis reports every failed attempt. This logs only that Redis went away and that it came back. */
export function logOutages(redis: RedisConnection, logger: Logger, onAway: () => unknown = () => undefined): void {
  let away = false;
  const noteAway = (reason: string) => {
    if (away) return;
    away = true;
    logger.error({ reason }, 'redis is away');
    onAway();
  };
  redis.on('error', (error: Error & { lastNodeError?: Error }) => noteAway((error.lastNodeError ?? error).message));
  redis.on('reconnecting', () => noteAway('The connection was closed.'));
  redis.on('ready', () => {
    if (away) logger.info('redis is back');
    away = false;
  });
}

/** The time has this many parts. A stall of this process counts as one part. */
const SILENT_PARTS = 5;

/**
 * Closes a connection without an answer for `socketTimeout`. The library's own timer would also close good connections
 * after a stall of this process, because it fires before a waiting answer is read.
 */
function endWhenSilent(redis: Redis): void {
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
      if (silentParts > SILENT_PARTS) stream.destroy(new Error(`No answer in ${ms} ms.`));
    }, ms / SILENT_PARTS).unref();
    stream.once('close', () => clearInterval(timer));
  });
}
