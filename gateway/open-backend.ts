import { setTimeout as sleep } from 'node:timers/promises';
import { readSecretFile } from '../shared/process/env.ts';
import type { Logger } from '../shared/process/logger.ts';
import { currentSecret, rereadFile } from '../shared/process/secret.ts';
import { GatewaySettings } from './config.ts';
import type { Clients } from './limiter/clients.ts';
import { redactApiKeys } from './limiter/credential.ts';
import type { LocalDecisions } from './limiter/limiter.ts';
import type { PlansInForce, StoredPlans } from './limiter/plans.ts';
import { type Announce, AUDIT_LOG, announceTo, banLog, confirmed, follow, Notice } from './primary/changes.ts';
import { certificatesIn } from './redis-settings.ts';
import { AuditLog, logged } from './stores/audit.ts';
import type { Backend, Embedded, OperatorsStores } from './stores/backend.ts';
import { watchEdits } from './stores/hand-edits.ts';
import { Backups, Keys } from './stores/keys.ts';
import { PlanCache } from './stores/plan-cache.ts';
import { Plans } from './stores/plans.ts';
import type { Answer, Peers } from './stores/redis/peers.ts';
import { type Credentials, credentialsOf, START_MS } from './stores/redis/target.ts';
import type { Storage } from './stores/storage.ts';
import { Tokens } from './stores/tokens.ts';
import { BannedKeys } from './telemetry/key-watch.ts';
import { RecentRequests } from './telemetry/recent-requests.ts';

/** A backend with its stores, the plans in force, and a record of recent decisions. */
export interface PlannedBackend extends Omit<Backend, 'storage' | 'operatorsStorage'> {
  /** Keys, read with the deadline of decisions. */
  readonly keys: Keys;
  readonly clients: Clients;
  readonly planCache: PlanCache;
  readonly recent: RecentRequests;
  readonly banned: BannedKeys;
  /** Notifies the other gateways of a ban that a decision imposed. */
  noteBan(key: string): void;
  /**
   * Opens the operators' stores, and finds the other gateways. Called once, by the process that serves operators.
   * @param countLoss is called if Redis has lost changes
   */
  operators(answer: Answer, countLoss: () => void): Promise<OperatorsStores & { readonly peers: Peers | undefined }>;
  /** Resolves once plans and script have been loaded from the store. Never rejects. */
  readonly loaded: Promise<void>;
  isLoaded(): boolean;
}

interface OpenOptions {
  readonly clients: Clients;
  /** Decides while Redis is unavailable. By default, `clients` does. */
  readonly locals?: LocalDecisions | undefined;
  /** Announces an operator's change to all processes that make decisions, before the change is acknowledged. */
  readonly announce?: Announce | undefined;
  /** Like `announce`, but for a change that nobody waits for. */
  readonly doubt?: Announce | undefined;
  /** Required without Redis. */
  readonly embedded?: Embedded | undefined;
  readonly plans?: StoredPlans | undefined;
  /** Whether the gateway is starting, rather than restarting one of its workers. True by default. */
  readonly isAtStart?: boolean | undefined;
  readonly withinMs?: number | undefined;
}

const LOAD_AGAIN_MS = 250;

/** Opens the stores that decisions and operators need, and starts to read the plans regularly. */
export async function openBackend(
  settings: GatewaySettings,
  logger: Logger,
  options: OpenOptions,
): Promise<PlannedBackend> {
  const { clients, announce = async () => {}, doubt = announce, plans, isAtStart = true } = options;
  const { withinMs = START_MS } = options;
  const patience = sleep(withinMs, undefined, { ref: false });
  const inForce = { table: undefined };
  const { storage, operatorsStorage, ...backend } = await backendOf(settings, logger, inForce, options, withinMs);
  const planCache = new PlanCache(new Plans(storage), logger, inForce, isAtStart);
  if (plans !== undefined) planCache.assume(plans);
  let isLoaded = false;
  let isNoted = false;
  async function load(): Promise<boolean> {
    if (planCache.ifKnown === undefined) return false;
    const fault = await backend.loadScript();
    if (fault !== undefined && !isNoted) logger.warn({ err: fault }, 'decisions are not possible yet');
    isNoted ||= fault !== undefined;
    return fault === undefined;
  }
  const firstLoad = planCache.start().then(load);
  async function untilLoaded(): Promise<void> {
    for (isLoaded = await firstLoad; !isLoaded; isLoaded = await load())
      await sleep(LOAD_AGAIN_MS, undefined, { ref: false });
  }
  const loaded = untilLoaded();
  await Promise.race([firstLoad, patience]);
  const stopped = new AbortController();
  const bans = banLog(storage, clients);
  let tails: readonly ReturnType<typeof follow>[] = [];
  return {
    ...backend,
    keys: new Keys(storage),
    clients,
    planCache,
    recent: new RecentRequests(settings.RECENT_REQUESTS / settings.WORKERS, planCache, redactApiKeys),
    banned: new BannedKeys(),
    noteBan: bans.add,
    async operators(answer, countLoss) {
      const own = logged(await operatorsStorage(), logger);
      watchEdits({ storage: own, plans: new Plans(own), planCache }, stopped.signal);
      // Without Redis, nobody else changes the store.
      if (options.embedded === undefined) {
        const audit = follow(AUDIT_LOG, storage, doubt, (lost) => {
          logger.error(lost, 'Redis has lost changes');
          countLoss();
        });
        tails = [audit, follow(bans.followed, storage, doubt)];
        // The first read of a log cannot show what has changed, so all data that was read earlier counts as outdated.
        // That read is therefore done before the gateway reports that it has started.
        await Promise.all(tails.map((tail) => tail.read().catch(() => undefined)));
        for (const tail of tails) tail.run(stopped.signal);
        bans.run(stopped.signal);
      }
      const announceHere = announceTo(own, announce);
      const peers = backend.peers?.((content) => {
        const changes = Notice.safeParse(content).data;
        return changes === undefined ? answer(content) : Promise.all(changes.map(announceHere));
      });
      const begin = () => planCache.begin();
      return { ...storesOver(confirmed(own, announceHere, begin, peers?.notify)), peers };
    },
    loaded,
    isLoaded: () => isLoaded,
    check: async () => [...(await backend.check()), ...tails.map((tail) => tail.check())],
    async close() {
      stopped.abort();
      await planCache.stop();
      await backend.close();
    },
  };
}

const storesOver = (storage: Storage): OperatorsStores => ({
  keys: new Keys(storage),
  plans: new Plans(storage),
  activity: new AuditLog(storage),
  tokens: new Tokens(storage),
  backups: new Backups(storage),
});

/** Loads only the code that the process needs. */
async function backendOf(
  settings: GatewaySettings,
  logger: Logger,
  plans: PlansInForce,
  { embedded, clients, locals }: OpenOptions,
  startMs: number,
): Promise<Backend> {
  if (embedded !== undefined) {
    const { embeddedBackend } = await import('./stores/backend.ts');
    return embeddedBackend(embedded, plans);
  }
  const { connect, connectOperators } = await import('./stores/redis/connection.ts');
  const { redisBackend } = await import('./stores/redis/backend.ts');
  const target = {
    mode: settings.REDIS_MODE,
    urls: settings.REDIS_URL ?? [],
    masterName: settings.REDIS_MASTER_NAME,
    sentinelUsername: settings.REDIS_SENTINEL_USERNAME,
    credentials: currentCredentials(settings, logger),
    ca: currentAuthorities(settings, logger),
    timeoutMs: settings.REDIS_TIMEOUT_MS,
    startMs,
  };
  const redis = await connect(target, logger);
  return redisBackend(redis, plans, logger, {
    clients,
    locals,
    auditLength: settings.ACTIVITY_LENGTH,
    connectOperators: () => connectOperators(target, logger, redis.status !== 'ready'),
  });
}

/** The current credentials. Files are read again for every new connection. */
function currentCredentials(settings: GatewaySettings, logger: Logger): () => Credentials {
  const options = { logger, maxAgeMs: 0 };
  const urls = currentSecret(GatewaySettings, settings, 'REDIS_URL', options);
  const sentinelPassword = currentSecret(GatewaySettings, settings, 'REDIS_SENTINEL_PASSWORD', options);
  return () => credentialsOf(urls()?.[0] ?? '', sentinelPassword());
}

/** The current CA certificates for Redis. The file is read again for every new connection. */
function currentAuthorities({ REDIS_CA_FILE: path }: GatewaySettings, logger: Logger): (() => string) | undefined {
  if (path === undefined) return undefined;
  return rereadFile('REDIS_CA_FILE', path, certificatesIn(readSecretFile(path)), certificatesIn, {
    logger,
    maxAgeMs: 0,
  });
}
