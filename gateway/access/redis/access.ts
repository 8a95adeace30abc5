import type { Logger } from '../../../shared/logger.ts';
import { rememberBans } from '../ban-memory.ts';
import { KnownKeys, type LocalDecisions } from '../known-keys.ts';
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

/** Of a connection that sets none. */
const DEFAULT_TIMEOUT_MS = 50;

interface RedisAccessOptions {
  /** What decides in Redis' place, given what this process knows of its keys. */
  readonly localsOf?: ((known: KnownKeys) => LocalDecisions) | undefined;
  /** Makes the connection on which operators wait longer. */
  readonly connectOperators?: () => Promise<RedisConnection>;
}

/** Keys, plans and decisions in Redis, shared by any number of gateways. */
export function redisAccess(
  redis: RedisConnection,
  plans: () => PlanTable,
  logger: Logger,
  { localsOf = (known) => known, connectOperators = async () => redis }: RedisAccessOptions = {},
): Access {
  const calls = new CallCounts();
  const timeoutMs = timeoutOf(redis);
  const shared = isCluster(redis)
    ? new ClusterLimiter(redis, plans, { calls, timeoutMs })
    : new RedisLimiter(redis, plans, { calls, timeoutMs });
  const limiter = surviveOutages(shared, localsOf(new KnownKeys(plans)), {
    logger,
    timeoutMs,
    nodeOf: isCluster(redis) ? nodeOf(redis) : undefined,
  });
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

function timeoutOf(redis: RedisConnection): number {
  const { commandTimeout = DEFAULT_TIMEOUT_MS } = isCluster(redis) ? (redis.options.redisOptions ?? {}) : redis.options;
  return commandTimeout;
}
