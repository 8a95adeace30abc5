import type { PlanStore } from '../limiter.ts';
import type { StoredPlans } from '../plans.ts';
import type { RedisConnection } from './connection.ts';
import { reach } from './reach.ts';

const TABLE = 'gateway:plans';

/** The plan table in Redis, where people edit it: `HSET gateway:plans free.minute 120`. */
export class RedisPlans implements PlanStore {
  readonly #redis: RedisConnection;

  constructor(redis: RedisConnection) {
    this.#redis = redis;
  }

  read(): Promise<StoredPlans> {
    return reach(this.#redis.hgetall(TABLE));
  }

  async seed(plans: StoredPlans): Promise<void> {
    await Promise.all(Object.entries(plans).map(([field, value]) => reach(this.#redis.hsetnx(TABLE, field, value))));
  }

  async write(plans: StoredPlans): Promise<void> {
    await reach(this.#redis.hset(TABLE, plans));
  }
}
