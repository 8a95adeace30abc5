import type { ConnectionLimit } from '../shared/connections.ts';
import { watchDescriptors } from '../shared/descriptors.ts';
import { HttpError } from '../shared/errors.ts';
import { droppedLines, type Logger } from '../shared/logger.ts';
import { createMetrics, type Metrics } from '../shared/metrics.ts';
import type { Running } from '../shared/run.ts';
import { type RunningServer, startServer } from '../shared/server.ts';
import { DEFAULT_LIMITS, type ServerLimits } from '../shared/server-limits.ts';
import { createService } from '../shared/service.ts';
import { AddressAllowance } from './access/address-allowance.ts';
import { systemClock } from './access/clock.ts';
import { redactApiKeys } from './access/credential.ts';
import { KeyFactsReader } from './access/key-facts.ts';
import { consoleRoutes } from './admin/console.ts';
import { OperatorsGuard } from './admin/guard.ts';
import type { AboutGateway } from './admin/parts.ts';
import { ROUTES as ADMIN_ROUTES } from './admin/routes.ts';
import { keptToken } from './admin/token.ts';
import { type CertificateFiles, readCertificate, watchCertificate } from './certificate.ts';
import type { GatewaySettings } from './config.ts';
import { openAccess, type PlannedAccess } from './open-access.ts';
import { MAX_HEAD_LENGTH } from './pipeline/canonical-request.ts';
import { clientAddress, countedAs, networkOf, TrustedProxies } from './pipeline/client-address.ts';
import { Cors } from './pipeline/cors.ts';
import { createPipeline } from './pipeline/pipeline.ts';
import { Tunnels } from './pipeline/tunnels.ts';
import { answerUnusable } from './pipeline/unusable-connection.ts';
import { loadReference, READS_PER_MINUTE } from './reference/files.ts';
import { type GatewayRoute, ROUTES } from './routes.ts';
import { exposeState } from './telemetry/state.ts';
import { Traffic } from './telemetry/traffic.ts';
import { examineCores } from './upstream/examine.ts';
import { createForwarder } from './upstream/forward.ts';

/** A few people, the command line and Prometheus: nobody else has business there. */
const OPERATORS_LIMITS: Partial<ServerLimits> = { connections: 200, connectionsPerAddress: 50 };
const OPERATORS_HEAD_BYTES = 8_192;

/**
 * The gateway in one process: what it decides by, clients, operators; stops in reverse.
 * @param limits what clients are allowed, where it is not what every server allows
 * @param routes what clients may reach
 */
export async function startGateway(
  settings: GatewaySettings,
  logger: Logger,
  limits: Partial<ServerLimits> = {},
  routes: readonly GatewayRoute[] = ROUTES,
): Promise<Running> {
  const metrics = createMetrics('gateway_admin');
  const access = await openAccess(settings, logger);
  const clients = await serveClients(settings, access, logger, metrics, limits, routes);
  const operators = await serveOperators(settings, access, logger, {
    metrics,
    decisions: access.recent,
    isLocal: () => access.nodesAway() > 0,
    async check() {
      if (clients.stopping) throw new HttpError('unavailable', 'The service is stopping.');
    },
  });
  return {
    addresses: { gateway: clients.url, admin: operators.url },
    async stop(lameDuckMs, lingerMs) {
      await clients.stop({ lameDuckMs, lingerMs });
      await operators.stop();
      await access.close();
    },
  };
}

/** Takes clients' requests: upstream, then gateway. */
export async function serveClients(
  settings: GatewaySettings,
  access: PlannedAccess,
  logger: Logger,
  metrics: Metrics,
  given: Partial<ServerLimits> = {},
  routes: readonly GatewayRoute[] = ROUTES,
): Promise<RunningServer> {
  // The longest wait for the core must not look like silence.
  const limits = { ...DEFAULT_LIMITS, silenceMs: Math.max(35_000, settings.CORE_TIMEOUT_MS + 5_000), ...given };
  const forwarder = createForwarder(settings.CORE_URL, settings.CORE_TIMEOUT_MS);
  const traffic = new Traffic(routes.map(({ operation }) => operation));
  metrics.counts(() => [...traffic.families(), ...access.counted(), ...forwarder.counted(), droppedLines('gateway')]);
  exposeState(metrics, access, forwarder);
  const tunnels = new Tunnels(access.keys, limits.webSocketIdleMs);
  const allowance = new AddressAllowance();
  const trustedProxies = new TrustedProxies(settings.TRUSTED_PROXIES);
  const draftFields = settings.RATELIMIT_FIELDS === 'on';
  const files = certificateFiles(settings);
  const certificate = files && readCertificate(files);
  const server = await startServer({
    host: settings.HOST,
    port: settings.PORT,
    ...createPipeline({
      routes,
      limiter: access.limiter,
      facts: new KeyFactsReader(access.keys),
      recent: access.recent,
      allowance,
      readers: new AddressAllowance(systemClock, READS_PER_MINUTE),
      cors: new Cors(settings.CORS_ORIGINS),
      forwarder,
      tunnels,
      reference: loadReference(),
      logger,
      traffic,
      trustedProxies,
      bodyLimitBytes: settings.BODY_LIMIT_BYTES,
      coreTimeoutMs: settings.CORE_TIMEOUT_MS,
      draftFields,
      coreToken: settings.CORE_TOKEN,
    }),
    onUnusable: (fault, socket) => answerUnusable({ fault, socket, allowance, draftFields, logger, traffic }),
    certificate,
    // What is too long is answered like any other refusal, so the server lets somewhat more through.
    maxHeaderBytes: 2 * MAX_HEAD_LENGTH,
    limits,
    countedAs: (remoteAddress) => countedAs(remoteAddress, trustedProxies),
    onRefused: countRefusals(metrics, logger),
    onCut: metrics.counter(
      'gateway_connections_cut_total',
      'Connections that were cut because their answers were not read.',
      'reason',
      ['slow_reader', 'unread_answers'],
    ),
  });
  const countExhausted = metrics.counter(
    'gateway_descriptors_exhausted_total',
    'Looks, one a second, that found no file descriptor left: new connections were closed.',
  );
  const stopLooking = watchDescriptors(logger, countExhausted);
  const stopWatching =
    files && certificate && watchCertificate({ files, first: certificate, onRenewed: server.renew, logger });
  return {
    url: server.url,
    get stopping() {
      return server.stopping;
    },
    renew: server.renew,
    async stop(options) {
      stopWatching?.();
      stopLooking();
      tunnels.stop();
      await server.stop(options);
      await forwarder.close();
    },
  };
}

/** Opens the operators' listener. */
export async function serveOperators(
  settings: GatewaySettings,
  access: PlannedAccess,
  logger: Logger,
  { isLocal, decisions, ...about }: AboutGateway,
): Promise<RunningServer> {
  const trustedProxies = new TrustedProxies(settings.TRUSTED_PROXIES);
  const traffic = { since: new Date(), counted: about.metrics.counted, isLocal };
  return await startServer({
    host: settings.ADMIN_HOST,
    port: settings.ADMIN_PORT,
    onRequest: createService({
      routes: [...ADMIN_ROUTES, ...consoleRoutes()],
      parts: {
        planCache: access.planCache,
        ...(await access.operators()),
        logger,
        decisions,
        traffic,
        examineOthers: async () => [
          ...(await access.examine()),
          ...(await examineCores(settings.CORE_URL, settings.CORE_TOKEN)),
        ],
      },
      logger,
      logsAs: 'operator request',
      redact: redactApiKeys,
      token: settings.ADMIN_TOKEN ?? (await keptToken(settings.DATA_DIR)),
      guard: new OperatorsGuard(settings.ADMIN_HOST, (request) => networkOf(clientAddress(request, trustedProxies))),
      ...about,
    }),
    maxHeaderBytes: OPERATORS_HEAD_BYTES,
    limits: OPERATORS_LIMITS,
    countedAs: (remoteAddress) => countedAs(remoteAddress, trustedProxies),
  });
}

/** The two settings come together or not at all. */
function certificateFiles({ TLS_CERT_FILE, TLS_KEY_FILE }: GatewaySettings): CertificateFiles | undefined {
  if (TLS_CERT_FILE === undefined || TLS_KEY_FILE === undefined) return undefined;
  return { certFile: TLS_CERT_FILE, keyFile: TLS_KEY_FILE };
}

/** Counts connections that were one too many, and says so in the log, once a second at the most: they come in floods. */
function countRefusals(metrics: Metrics, logger: Logger): (limit: ConnectionLimit) => void {
  const count = metrics.counter('gateway_connections_refused_total', 'Connections over a limit.', 'limit', [
    'address',
    'total',
  ]);
  let toldAt = Number.NEGATIVE_INFINITY;
  return (limit) => {
    count(limit);
    if (performance.now() - toldAt < 1_000) return;
    toldAt = performance.now();
    logger.warn({ limit }, 'too many connections');
  };
}
