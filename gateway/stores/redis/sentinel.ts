import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Logger } from '../../../shared/process/logger.ts';
import { CONNECT_TIMEOUT_MS, checkDatabase, failFast, logOutages, prepare, retryAs } from './connection.ts';
import { addresses, commonOptions, type RedisTarget } from './target.ts';
import { logRefusedTls, SentinelTlsConnector } from './tls.ts';

const DEFAULT_PORT = 26_379;
/**
 * Longer than a connection may take: the library must not close a connection during its handshake (tls.ts explains
 * why).
 */
const SENTINEL_TIMEOUT_MS = 2 * CONNECT_TIMEOUT_MS;

/**
 * Connects to the primary that the sentinels name, or keeps asking them in the background. A node that answers READONLY
 * is no longer the primary: the decision fails, and the sentinels are asked again.
 */
export async function connectBySentinels(target: RedisTarget, logger: Logger): Promise<Redis> {
  const { sentinelUsername, credentials } = target;
  const common = commonOptions(target);
  const sentinels = addresses(target, DEFAULT_PORT);
  const redis: Redis = new Redis({
    ...failFast(target.timeoutMs),
    ...common,
    ...credentials(),
    sentinels,
    name: target.masterName ?? '',
    role: 'master',
    // Uses only the configured sentinels: an address that a sentinel reports may be unreachable from here.
    updateSentinels: false,
    sentinelCommandTimeout: SENTINEL_TIMEOUT_MS,
    // While no sentinel answers, the library calls only this strategy.
    sentinelRetryStrategy: (attempt) => retryAs(redis, credentials, attempt),
    ...(sentinelUsername !== undefined && { sentinelUsername }),
    ...(common.tls && {
      sentinelTLS: common.tls,
      enableTLSForSentinelMode: true,
      Connector: SentinelTlsConnector,
    }),
    enableOfflineQueue: false,
    retryStrategy: (attempt) => retryAs(redis, credentials, attempt),
    reconnectOnError: ({ message }) => message.startsWith('READONLY '),
  });
  prepare(redis);
  logOutages(redis, logger, () => logRefusedTls(sentinels, common.tls, logger));
  await Promise.race([redis.connect().catch(() => undefined), sleep(target.startMs, undefined, { ref: false })]);
  if (redis.status === 'ready') await checkDatabase(redis);
  return redis;
}
