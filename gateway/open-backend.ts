import { setTimeout as sleep } from 'node:timers/promises';
import { readSecretFile } from '../shared/process/env.ts';
import type { Logger } from '../shared/process/logger.ts';
import { currentSecret, rereadFile } from '../shared/process/secret.ts';
import { GatewaySettings } from './config.ts';
import type { KnownKeys, LocalDecisions } from './limiter/known-keys.ts';
import type { PlanTable, StoredPlans } from './limiter/plans.ts';
import { certificatesIn } from './redis-settings.ts';
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
  /** Resolves once plans and script were loaded from the store. Never rejects. */
  readonly loaded: Promise<void>;
  isLoaded(): boolean;
}

interface OpenOptions {
  /** Creates what decides while Redis is unavailable, from the keys this process knows. */
  readonly localsOf?: ((known: KnownKeys) => LocalDecisions) | undefined;
  /** The plans until they are read. */
  readonly plans?: StoredPlans | undefined;
  /** How long to wait for the store. */
  readonly withinMs?: number | undefined;
}

const LOAD_AGAIN_MS = 250;

/** Opens what decisions need: keys, and plans that are read at intervals. */
export async function openBackend(
  settings: GatewaySettings,
  logger: Logger,
  { localsOf, plans, withinMs = START_MS }: OpenOptions = {},
): Promise<PlannedBackend> {
  const patience = sleep(withinMs, undefined, { ref: false });
  const backend = await backendOf(settings, logger, () => planCache.table, { localsOf, withinMs });
  const planCache = new PlanCache(backend.plans, logger);
  if (plans !== undefined) planCache.assume(plans);
  let isLoaded = false;
  const load = async () => planCache.version !== undefined && (await backend.loadScript());
  const firstLoad = planCache.start().then(load);
  async function untilLoaded(): Promise<void> {
    for (isLoaded = await firstLoad; !isLoaded; isLoaded = await load())
      await sleep(LOAD_AGAIN_MS, undefined, { ref: false });
  }
  const loaded = untilLoaded();
  await Promise.race([firstLoad, patience]);
  return {
    ...backend,
    planCache,
    recent: new RecentDecisions(() => planCache.version),
    banned: new BannedKeys(),
    loaded,
    isLoaded: () => isLoaded,
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
  { localsOf, withinMs: startMs = START_MS }: OpenOptions,
): Promise<Backend> {
  if (settings.REDIS_URL === undefined) {
    const { memoryBackend } = await import('./stores/memory/backend.ts');
    return await memoryBackend(settings.DATA_DIR, plans, logger, settings.ACTIVITY_LENGTH);
  }
  const target = {
    mode: settings.REDIS_MODE,
    urls: settings.REDIS_URL,
    masterName: settings.REDIS_MASTER_NAME,
    sentinelUsername: settings.REDIS_SENTINEL_USERNAME,
    credentials: currentCredentials(settings, logger),
    ca: currentAuthorities(settings, logger),
    timeoutMs: settings.REDIS_TIMEOUT_MS,
    startMs,
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
