import { type GatewaySettings, webhookSecretOf } from '../../gateway/config.ts';
import type { Clock } from '../../gateway/limiter/bucket.ts';
import { Clients } from '../../gateway/limiter/clients.ts';
import type { PlansInForce } from '../../gateway/limiter/plans.ts';
import { openBackend, type PlannedBackend } from '../../gateway/open-backend.ts';
import { type Announce, actOn } from '../../gateway/primary/changes.ts';
import { type GatewayRoute, ROUTES } from '../../gateway/routes.ts';
import { type OperatorsServer, serveOperators } from '../../gateway/serve-operators.ts';
import { type ForClients, serveClients } from '../../gateway/start.ts';
import { EmbeddedLimiter } from '../../gateway/stores/embedded-limiter.ts';
import { type SqliteOptions, SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';
import { Webhooks } from '../../gateway/webhooks/webhooks.ts';
import { HttpError } from '../../shared/http/errors.ts';
import type { ServerLimits } from '../../shared/http/server.ts';
import type { Logger } from '../../shared/process/logger.ts';
import { createMetrics } from '../../shared/process/metrics.ts';
import type { Running } from '../../shared/process/run.ts';

/**
 * Starts the parts of a gateway (backend, clients, operators) in this process, so no messages pass between a primary
 * and a worker. They are stopped in reverse order.
 * @param limits the limits for clients that differ from the server's defaults
 * @param routes the routes that clients may use
 */
export async function startGateway(
  settings: GatewaySettings,
  logger: Logger,
  limits: Partial<ServerLimits> = {},
  routes: readonly GatewayRoute[] = ROUTES,
): Promise<Running> {
  const metrics = createMetrics('gateway_admin');
  const known = new Clients(
    () => opened?.planCache.ifKnown,
    undefined,
    ({ id }) => opened?.noteBan(id),
  );
  const { DATA_DIR, ACTIVITY_LENGTH } = settings;
  const embedded =
    settings.REDIS_URL === undefined ? embeddedParts(DATA_DIR, { auditLength: ACTIVITY_LENGTH }) : undefined;
  let opened: PlannedBackend | undefined;
  const announce: Announce = async (changed) => actOn(changed, known, opened?.planCache);
  const backend = await openBackend(settings, logger, { embedded, clients: known, announce });
  opened = backend;
  const webhooks = new Webhooks(backend.keys, logger, {
    url: settings.WEBHOOK_URL,
    secret: webhookSecretOf(settings, logger),
  });
  metrics.counts(() => webhooks.counted());
  const since = Date.now();
  let operators: OperatorsServer | undefined;
  const forClients: ForClients = {
    notify: webhooks.send.bind(webhooks),
    refusals: async (id) => await operators?.refusals.of(id),
  };
  const clients = await serveClients(settings, backend, logger, metrics, forClients, limits, routes);
  operators = await serveOperators(settings, backend, logger, {
    metrics,
    requests: {
      async find(query) {
        const requests = await backend.recent.find(query);
        return { requests, missing: [], since: Math.max(since, backend.recent.keptSince(query)) };
      },
    },
    banned: () => [backend.banned.latest()],
    isLocal: () => backend.nodesAway() > 0,
    processes: () => [{ cores: clients.cores(), redis: backend.redis(), certificate: clients.certificate() }],
    async check() {
      if (clients.stopping) throw new HttpError('unavailable', 'The service is stopping.');
      if (!backend.isLoaded()) throw new HttpError('unavailable', 'The plans have not been read yet.');
      return embedded?.storage.fault();
    },
  });
  return {
    addresses: { gateway: clients.url, admin: operators.url },
    async stop(lameDuckMs, lingerMs) {
      await clients.stop({ lameDuckMs, lingerMs });
      await webhooks.stop();
      await operators?.stop();
      await backend.close();
      await embedded?.storage.close();
    },
  };
}

/** Creates an embedded storage and its limiter. @param clock the clock for decisions */
export function embeddedParts(folder: string, options: Pick<SqliteOptions, 'auditLength'> = {}, clock?: Clock) {
  let limiter: EmbeddedLimiter | undefined;
  const storage = new SqliteStorage(folder, {
    ...options,
    owner: {
      async release(id) {
        const state = limiter?.release(id, true);
        if (state !== undefined) void storage.save([[id, state]], true);
      },
      flush: async () => limiter?.flush(),
    },
  });
  const limiterOf = (plans: PlansInForce) => (limiter = new EmbeddedLimiter(storage, plans, clock));
  return { storage, limiterOf };
}
