import type { Logger } from '../../../shared/logger.ts';
import { connectCluster } from './cluster.ts';
import { connectRedis, type RedisConnection } from './connection.ts';
import { connectBySentinels } from './sentinel.ts';
import type { RedisTarget } from './target.ts';

/** After which an operator's command is given up: far longer than Redis is busy, or takes to fail over. */
const OPERATORS_TIMEOUT_MS = 5_000;

const AWAY_MS = 1_000;

/**
 * Connects once more, for operators: they can wait. What becomes of this Redis is told by the connection for decisions; a
 * start that has waited for that in vain waits little for this one.
 * @throws as `connect` does
 */
export function connectOperators(target: RedisTarget, logger: Logger, isAway: boolean): Promise<RedisConnection> {
  const timeoutMs = Math.max(target.timeoutMs, OPERATORS_TIMEOUT_MS);
  const startMs = isAway ? AWAY_MS : target.startMs;
  return connect({ ...target, timeoutMs, startMs }, logger.child({}, { level: 'silent' }));
}

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
      return await connectRedis(target.urls[0] ?? '', target.timeoutMs, logger, target.ca, target.startMs);
  }
}
