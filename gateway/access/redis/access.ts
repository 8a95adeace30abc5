import { rememberBans } from '../ban-memory.ts';
import type { Access } from '../limiter.ts';
import type { PlanTable } from '../plans.ts';
import type { RedisConnection } from './connection.ts';
import { RedisKeys } from './keys.ts';
import { RedisLimiter } from './limiter.ts';
import { RedisPlans } from './plans.ts';

/** Keys, plans and decisions in Redis, shared by any number of gateways. */
export function redisAccess(redis: RedisConnection, plans: () => PlanTable): Access {
  return {
    limiter: rememberBans(new RedisLimiter(redis, plans)),
    keys: new RedisKeys(redis),
    plans: new RedisPlans(redis),
    async close() {
      redis.disconnect();
    },
  };
}
