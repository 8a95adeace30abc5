import type { Logger } from '../../../shared/logger.ts';
import { rememberBans } from '../ban-memory.ts';
import type { Access } from '../limiter.ts';
import { surviveOutages } from '../outage.ts';
import type { PlanTable } from '../plans.ts';
import { CallCounts } from './call-counts.ts';
import { isCluster, nodeOf } from './cluster.ts';
import { ClusterLimiter } from './cluster-limiter.ts';
import type { RedisConnection } from './connection.ts';
import { examineRedis } from './examine.ts';
import { RedisKeys } from './keys.ts';
import { RedisLimiter } from './limiter.ts';
import { RedisPlans } from './plans.ts';

/**
 * Keys, plans and decisions in Redis, shared by any number of gateways.
 * @param connectOperators makes the connection on which operators wait longer
 */
export function redisAccess(
  redis: RedisConnection,
  plans: () => PlanTable,
  logger: Logger,
  connectOperators: () => Promise<RedisConnection> = async () => redis,
): Access {
  const calls = new CallCounts();
  const limiter = isCluster(redis)
    ? surviveOutages(new ClusterLimiter(redis, plans, calls), plans, logger, nodeOf(redis))
    : surviveOutages(new RedisLimiter(redis, plans, { calls }), plans, logger);
  const remembering = rememberBans(limiter);
  let operators: RedisConnection | undefined;
  return {
    limiter: remembering,
    keys: new RedisKeys(redis),
    plans: new RedisPlans(redis),
    async operators() {
      operators = await connectOperators();
      return { keys: new RedisKeys(operators), plans: new RedisPlans(operators) };
    },
    bans: () => remembering.bans(),
    nodesAway: () => limiter.nodesAway(),
    counted: () => calls.families(),
    examine: () => examineRedis(redis),
    async close() {
      limiter.stop();
      redis.disconnect();
      operators?.disconnect();
    },
  };
}
