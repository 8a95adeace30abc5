import type { Logger } from '../shared/logger.ts';
import type { KnownKeys, LocalDecisions } from './access/known-keys.ts';
import type { Access } from './access/limiter.ts';
import { memoryAccess } from './access/memory/access.ts';
import { PlanCache } from './access/plan-cache.ts';
import type { PlanTable } from './access/plans.ts';
import { redisAccess } from './access/redis/access.ts';
import { connect, connectOperators } from './access/redis/connect.ts';
import { START_MS } from './access/redis/connection.ts';
import type { GatewaySettings } from './config.ts';
import { RecentDecisions } from './telemetry/recent-decisions.ts';

/** Access, with the plans in force, and what was decided by them last. */
export interface PlannedAccess extends Access {
  readonly planCache: PlanCache;
  readonly recent: RecentDecisions;
}

/**
 * Opens what decisions are made by: keys, and plans that are read again and again.
 * @param localsOf what decides in Redis' place, given what this process knows of its keys
 */
export async function openAccess(
  settings: GatewaySettings,
  logger: Logger,
  localsOf?: (known: KnownKeys) => LocalDecisions,
): Promise<PlannedAccess> {
  const access = await accessOf(settings, logger, () => planCache.table, localsOf);
  const planCache = new PlanCache(access.plans, logger);
  await planCache.start();
  return {
    ...access,
    planCache,
    recent: new RecentDecisions(() => planCache.version),
    async close() {
      await planCache.stop();
      await access.close();
    },
  };
}

async function accessOf(
  settings: GatewaySettings,
  logger: Logger,
  plans: () => PlanTable,
  localsOf?: (known: KnownKeys) => LocalDecisions,
): Promise<Access> {
  if (settings.REDIS_URL === undefined) return await memoryAccess(settings.DATA_DIR, plans);
  const target = {
    mode: settings.REDIS_MODE,
    urls: settings.REDIS_URL,
    masterName: settings.REDIS_MASTER_NAME,
    sentinelUsername: settings.REDIS_SENTINEL_USERNAME,
    sentinelPassword: settings.REDIS_SENTINEL_PASSWORD,
    ca: settings.REDIS_CA_FILE,
    timeoutMs: settings.REDIS_TIMEOUT_MS,
    startMs: START_MS,
  };
  const redis = await connect(target, logger);
  return redisAccess(redis, plans, logger, {
    localsOf,
    connectOperators: () => connectOperators(target, logger, redis.status !== 'ready'),
  });
}
