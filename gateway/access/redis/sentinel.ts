import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Logger } from '../../../shared/logger.ts';
import { checkDatabase, failFast, retryDelayMs, SCRIPTS, tellOnce } from './connection.ts';
import { addresses, commonOptions, type RedisTarget } from './target.ts';

const DEFAULT_PORT = 26_379;
const SENTINEL_TIMEOUT_MS = 300;
/** A start waits no longer than this for a primary; it is looked for all the same. */
const START_MS = 2_000;

/**
 * Connects to the primary that the sentinels name, or goes on asking them in the background. A primary that says READONLY is
 * none any more: the decision fails, and the sentinels are asked anew.
 */
export async function connectBySentinels(target: RedisTarget, logger: Logger): Promise<Redis> {
  const { sentinelUsername, sentinelPassword } = target;
  const common = commonOptions(target);
  const redis = new Redis({
    ...failFast(target.timeoutMs),
    ...common,
    sentinels: addresses(target, DEFAULT_PORT),
    name: target.masterName ?? '',
    role: 'master',
    // Those that are given are asked, and no others: an address that a sentinel tells may mean nothing out here.
    updateSentinels: false,
    sentinelCommandTimeout: SENTINEL_TIMEOUT_MS,
    sentinelRetryStrategy: retryDelayMs,
    ...(sentinelUsername !== undefined && { sentinelUsername }),
    ...(sentinelPassword !== undefined && { sentinelPassword }),
    ...(common.tls && { sentinelTLS: common.tls, enableTLSForSentinelMode: true }),
    enableOfflineQueue: false,
    retryStrategy: retryDelayMs,
    reconnectOnError: ({ message }) => message.startsWith('READONLY '),
    scripts: SCRIPTS,
  });
  tellOnce(redis, logger);
  await Promise.race([redis.connect().catch(() => undefined), sleep(START_MS, undefined, { ref: false })]);
  if (redis.status === 'ready') await checkDatabase(redis);
  return redis;
}
