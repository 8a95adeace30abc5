import type { Logger } from '../../../shared/logger.ts';
import { connectCluster } from './cluster.ts';
import { connectRedis, type RedisConnection } from './connection.ts';
import { connectBySentinels } from './sentinel.ts';
import type { RedisTarget } from './target.ts';

/**
 * Connects to a Redis in any of its forms, or goes on trying in the background.
 * @throws when there is no database of the number that the URLs name
 */
export async function connect(target: RedisTarget, logger: Logger): Promise<RedisConnection> {
  switch (target.mode) {
    case 'cluster':
      return await connectCluster(target, logger);
    case 'sentinel':
      return await connectBySentinels(target, logger);
    case 'single':
      return await connectRedis(target.urls[0] ?? '', target.timeoutMs, logger, target.ca);
  }
}
