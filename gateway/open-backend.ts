import { readSecretFile } from '../shared/process/env.ts';
import type { Logger } from '../shared/process/logger.ts';
import { currentSecret, rereadFile } from '../shared/process/secret.ts';
import { GatewaySettings } from './config.ts';
import type { KnownKeys, LocalDecisions } from './limiter/known-keys.ts';
import type { PlanTable } from './limiter/plans.ts';
import { certificatesIn } from './redis-settings.ts';
import { memoryBackend } from './stores/memory/backend.ts';
import { PlanCache } from './stores/plan-cache.ts';
import { redisBackend } from './stores/redis/backend.ts';
import { connect, connectOperators } from './stores/redis/connect.ts';
import { START_MS } from './stores/redis/connection.ts';
import { type Credentials, credentialsOf } from './stores/redis/target.ts';
import type { Backend } from './stores/stores.ts';
import { BannedKeys } from './telemetry/key-watch.ts';
import { RecentDecisions } from './telemetry/recent-decisions.ts';

/** A backend with the current plans, and what is remembered of the last decisions. */
export interface PlannedBackend extends Backend {
  readonly planCache: PlanCache;
  readonly recent: RecentDecisions;
  readonly banned: BannedKeys;
}

/**
 * Opens what decisions need: keys, and plans that are read at intervals.
 * @param localsOf creates what decides while Redis is unavailable, from the keys this process knows
 */
export async function openBackend(
  settings: GatewaySettings,
  logger: Logger,
  localsOf?: (known: KnownKeys) => LocalDecisions,
): Promise<PlannedBackend> {
  const backend = await backendOf(settings, logger, () => planCache.table, localsOf);
  const planCache = new PlanCache(backend.plans, logger);
  await planCache.start();
  return {
    ...backend,
    planCache,
    recent: new RecentDecisions(() => planCache.version),
    banned: new BannedKeys(),
    async close() {
      await planCache.stop();
      await backend.close();
    },
  };
}

async function backendOf(
  settings: GatewaySettings,
  logger: Logger,
  plans: () => PlanTable,
  localsOf?: (known: KnownKeys) => LocalDecisions,
): Promise<Backend> {
  if (settings.REDIS_URL === undefined)
    return await memoryBackend(settings.DATA_DIR, plans, logger, settings.ACTIVITY_LENGTH);
  const target = {
    mode: settings.REDIS_MODE,
    urls: settings.REDIS_URL,
    masterName: settings.REDIS_MASTER_NAME,
    sentinelUsername: settings.REDIS_SENTINEL_USERNAME,
    credentials: currentCredentials(settings, logger),
    ca: currentAuthorities(settings, logger),
    timeoutMs: settings.REDIS_TIMEOUT_MS,
    startMs: START_MS,
  };
  const redis = await connect(target, logger);
  return redisBackend(redis, plans, logger, {
    localsOf,
    activityLength: settings.ACTIVITY_LENGTH,
    connectOperators: () => connectOperators(target, logger, redis.status !== 'ready'),
  });
}

/** Read for every new connection, from the files that have them. */
function currentCredentials(settings: GatewaySettings, logger: Logger): () => Credentials {
  const options = { logger, maxAgeMs: 0 };
  const urls = currentSecret(GatewaySettings, settings, 'REDIS_URL', options);
  const sentinelPassword = currentSecret(GatewaySettings, settings, 'REDIS_SENTINEL_PASSWORD', options);
  return () => credentialsOf(urls()?.[0] ?? '', sentinelPassword());
}

/** Likewise, those that a certificate of Redis is checked with. */
function currentAuthorities({ REDIS_CA_FILE: path }: GatewaySettings, logger: Logger): (() => string) | undefined {
  if (path === undefined) return undefined;
  return rereadFile('REDIS_CA_FILE', path, certificatesIn(readSecretFile(path)), certificatesIn, {
    logger,
    maxAgeMs: 0,
  });
}
