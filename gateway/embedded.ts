import { HttpError } from '../shared/http/errors.ts';
import type { ServerLimits } from '../shared/http/server-limits.ts';
import type { Logger } from '../shared/process/logger.ts';
import { createMetrics } from '../shared/process/metrics.ts';
import type { Running } from '../shared/process/run.ts';
import { type GatewaySettings, webhookSecretOf } from './config.ts';
import { openBackend } from './open-backend.ts';
import { type GatewayRoute, ROUTES } from './routes.ts';
import { serveOperators } from './serve-operators.ts';
import { serveClients } from './start.ts';
import { Webhooks } from './webhooks/webhooks.ts';

/** The program without Redis. A reload has nothing to do: files are followed, and there is no worker to renew. */
export function startEmbedded(settings: GatewaySettings, logger: Logger): Promise<Running> {
  process.on('SIGHUP', () => logger.info('nothing to reload: without REDIS_URL the gateway is one process'));
  return startGateway(settings, logger);
}

/**
 * The gateway in one process: backend, clients, operators; stops in reverse order.
 * @param limits for clients, where they differ from the server's defaults
 * @param routes that clients may reach
 */
export async function startGateway(
  settings: GatewaySettings,
  logger: Logger,
  limits: Partial<ServerLimits> = {},
  routes: readonly GatewayRoute[] = ROUTES,
): Promise<Running> {
  const metrics = createMetrics('gateway_admin');
  const backend = await openBackend(settings, logger);
  const webhooks = new Webhooks(backend.keys, logger, {
    url: settings.WEBHOOK_URL,
    secret: webhookSecretOf(settings, logger),
  });
  metrics.counts(() => webhooks.counted());
  const tell = webhooks.tell.bind(webhooks);
  const clients = await serveClients(settings, backend, logger, metrics, tell, limits, routes);
  const operators = await serveOperators(settings, backend, logger, {
    metrics,
    decisions: backend.recent,
    banned: () => [backend.banned.latest()],
    isLocal: () => backend.nodesAway() > 0,
    processes: () => [{ cores: clients.cores(), redis: backend.redis() }],
    async check() {
      if (clients.stopping) throw new HttpError('unavailable', 'The service is stopping.');
      if (!backend.isLoaded()) throw new HttpError('unavailable', 'The plans were not read from Redis yet.');
    },
  });
  return {
    addresses: { gateway: clients.url, admin: operators.url },
    async stop(lameDuckMs, lingerMs) {
      await clients.stop({ lameDuckMs, lingerMs });
      await webhooks.stop();
      await operators.stop();
      await backend.close();
    },
  };
}
