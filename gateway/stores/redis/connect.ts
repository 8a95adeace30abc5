import type { Logger } from '../../../shared/process/logger.ts';
import type { RedisConnection } from './calls.ts';
import { connectCluster } from './cluster.ts';
import { connectRedis } from './connection.ts';
import { connectBySentinels } from './sentinel.ts';
import type { RedisTarget } from './target.ts';

/** The timeout of an operator's command: far longer than Redis is ever busy or takes to fail over. */
const OPERATORS_TIMEOUT_MS = 5_000;

const AWAY_MS = 1_000;

/**
 * Opens a second connection, for operators, with longer timeouts. The connection for decisions already logs the state
 * of this Redis. If that one could not connect in time, this one gets only a short time.
 * @throws as `connect` does
 */
export function connectOperators(target: RedisTarget, logger: Logger, isAway: boolean): Promise<RedisConnection> {
  const timeoutMs = Math.max(target.timeoutMs, OPERATORS_TIMEOUT_MS);
  const startMs = isAway ? AWAY_MS : target.startMs;
  return connect({ ...target, timeoutMs, startMs }, logger.child({}, { level: 'silent' }));
}

/**
 * Connects to a Redis of any kind, or keeps trying in the background.
 * @throws if the database number in the URLs does not exist
 */
export async function connect(target: RedisTarget, logger: Logger): Promise<RedisConnection> {
  switch (target.mode) {
    case 'cluster':
      return await connectCluster(target, logger);
    case 'sentinel':
      return await connectBySentinels(target, logger);
    case 'single':
      return await connectRedis(target.urls[0] ?? '', { ...target, logger });
  }
}
