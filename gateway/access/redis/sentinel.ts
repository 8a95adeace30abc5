import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Logger } from '../../../shared/logger.ts';
import { CONNECT_TIMEOUT_MS, checkDatabase, failFast, prepare, retryDelayMs, tellOnce } from './connection.ts';
import { addresses, commonOptions, type RedisTarget } from './target.ts';
import { SentinelTlsConnector, tellWhyRefused } from './tls.ts';

const DEFAULT_PORT = 26_379;
/** Longer than a connection may take: the library must not end one in the middle of a handshake (tls.ts says why). */
const SENTINEL_TIMEOUT_MS = 2 * CONNECT_TIMEOUT_MS;

/**
 * Connects to the primary that the sentinels name, or goes on asking them in the background. A primary that says READONLY is
 * none any more: the decision fails, and the sentinels are asked anew.
 */
export async function connectBySentinels(target: RedisTarget, logger: Logger): Promise<Redis> {
  const { sentinelUsername, sentinelPassword } = target;
  const common = commonOptions(target);
  const sentinels = addresses(target, DEFAULT_PORT);
  const redis = new Redis({
    ...failFast(target.timeoutMs),
    ...common,
    sentinels,
    name: target.masterName ?? '',
    role: 'master',
    // Those that are given are asked, and no others: an address that a sentinel tells may mean nothing out here.
    updateSentinels: false,
    sentinelCommandTimeout: SENTINEL_TIMEOUT_MS,
    sentinelRetryStrategy: retryDelayMs,
    ...(sentinelUsername !== undefined && { sentinelUsername }),
    ...(sentinelPassword !== undefined && { sentinelPassword }),
    ...(common.tls && {
      sentinelTLS: common.tls,
      enableTLSForSentinelMode: true,
      Connector: SentinelTlsConnector,
    }),
    enableOfflineQueue: false,
    retryStrategy: retryDelayMs,
    reconnectOnError: ({ message }) => message.startsWith('READONLY '),
  });
  prepare(redis);
  tellOnce(redis, logger, () => tellWhyRefused(sentinels, common.tls, logger));
  await Promise.race([redis.connect().catch(() => undefined), sleep(target.startMs, undefined, { ref: false })]);
  if (redis.status === 'ready') await checkDatabase(redis);
  return redis;
}
