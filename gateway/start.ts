import {
  type ConnectionLimit,
  DEFAULT_LIMITS,
  type RunningServer,
  type ServerLimits,
  startServer,
} from '../shared/http/server.ts';
import { watchDescriptors } from '../shared/process/descriptors.ts';
import { droppedLines, type Logger } from '../shared/process/logger.ts';
import type { Metrics } from '../shared/process/metrics.ts';
import { type CertificateFiles, type CertificateState, readCertificate, watchCertificate } from './certificate.ts';
import { coreTokenOf, type GatewaySettings } from './config.ts';
import { systemClock } from './limiter/bucket.ts';
import { AddressAllowance } from './limiter/newcomers.ts';
import type { PlannedBackend } from './open-backend.ts';
import { countedAs, HEAD_LIMITS, TrustedProxies } from './pipeline/client-http.ts';
import { Cors } from './pipeline/own-answers.ts';
import { createPipeline } from './pipeline/pipeline.ts';
import { Tunnels } from './pipeline/tunnels.ts';
import { loadReference, READS_PER_MINUTE } from './reference/files.ts';
import { type GatewayRoute, ROUTES } from './routes.ts';
import { factsReader } from './stores/keys.ts';
import type { KeyRefusal } from './telemetry/key-refusals.ts';
import { KeyWatch } from './telemetry/key-watch.ts';
import { Traffic } from './telemetry/request-metrics.ts';
import { exposeCertificate, exposeState } from './telemetry/state.ts';
import type { CoreState } from './upstream/core.ts';
import { Forwarder } from './upstream/forwarder.ts';
import { type Happening, happeningOf } from './webhooks/message.ts';

/** What a process that serves clients can ask of the one that serves operators. */
export interface ForClients {
  /** Called with each key event, for WEBHOOK_URL. */
  notify(happening: Happening): void;
  /** The last refusals of a key by all gateways; undefined if they cannot be read now. */
  refusals(id: string): Promise<readonly KeyRefusal[] | undefined>;
}

/** Serves clients: opens the upstream, then the listener. */
export async function serveClients(
  settings: GatewaySettings,
  backend: PlannedBackend,
  logger: Logger,
  metrics: Metrics,
  { notify, refusals }: ForClients,
  given: Partial<ServerLimits> = {},
  routes: readonly GatewayRoute[] = ROUTES,
): Promise<RunningServer & { cores(): CoreState[]; certificate(): CertificateState | undefined }> {
  const limits = { ...DEFAULT_LIMITS, ...given };
  const forwarder = new Forwarder(
    settings.CORE_URL,
    { timeoutMs: settings.CORE_TIMEOUT_MS, concurrency: settings.CORE_CONCURRENCY },
    logger,
  );
  await forwarder.start();
  const traffic = new Traffic(routes.map(({ operation }) => operation));
  const watch = new KeyWatch(backend.clients, (...event) => notify(happeningOf(...event)));
  metrics.counts(() => [
    ...traffic.families(),
    ...backend.counted(),
    ...forwarder.cores.counted(),
    droppedLines('gateway'),
  ]);
  exposeState(metrics, backend, forwarder, watch);
  const tunnels = new Tunnels(backend.limiter, limits.webSocketIdleMs);
  const allowance = new AddressAllowance();
  const trustedProxies = new TrustedProxies(settings.TRUSTED_PROXIES);
  const files = certificateFiles(settings);
  const certificate = files && readCertificate(files);
  const server = await startServer({
    host: settings.HOST,
    port: settings.PORT,
    ...createPipeline({
      routes,
      limiter: backend.limiter,
      clients: backend.clients,
      factsOf: factsReader(backend.keys, backend.clients),
      refusals,
      plans: () => backend.planCache.table,
      recent: backend.recent,
      banned: backend.banned,
      watch,
      allowance,
      readers: new AddressAllowance(systemClock, READS_PER_MINUTE),
      cors: settings.CORS_ORIGINS.length === 0 ? undefined : new Cors(settings.CORS_ORIGINS),
      forwarder,
      tunnels,
      reference: loadReference(() => backend.planCache.table),
      logger,
      traffic,
      trustedProxies,
      bodyLimitBytes: settings.BODY_LIMIT_BYTES,
      draftFields: settings.RATELIMIT_FIELDS === 'on',
      showsTiming: settings.SERVER_TIMING === 'on',
      coreToken: coreTokenOf(settings, logger),
    }),
    certificate,
    // The pipeline refuses heads that are too long with a normal error, so the server must accept them first.
    maxHeaderBytes: 2 * HEAD_LIMITS.bytes,
    limits,
    countedAs: (remoteAddress) => countedAs(remoteAddress, trustedProxies),
    onRefused: countRefusals(metrics, logger),
    onCut: metrics.counter(
      'gateway_connections_cut_total',
      'Connections cut for slow reading, or for too many bytes of unread responses and unfinished requests.',
      'reason',
      ['slow_reader', 'unread_answers'],
    ),
  });
  const countExhausted = metrics.counter(
    'gateway_descriptors_exhausted_total',
    'Seconds without a free file descriptor, in which new connections were closed.',
  );
  const stopLooking = watchDescriptors(logger, countExhausted);
  const watchedFiles =
    files && certificate && watchCertificate({ files, first: certificate, onRenewed: server.renew, logger });
  exposeCertificate(metrics, watchedFiles);
  return {
    url: server.url,
    cores: () => [...forwarder.cores.states(), ...forwarder.cores.draining()],
    certificate: () => watchedFiles?.state(),
    get stopping() {
      return server.stopping;
    },
    renew: server.renew,
    async stop(options) {
      watchedFiles?.stop();
      stopLooking();
      tunnels.stop();
      await server.stop(options);
      forwarder.close();
    },
  };
}

/** The settings' schema requires both or neither. */
function certificateFiles({ TLS_CERT_FILE, TLS_KEY_FILE }: GatewaySettings): CertificateFiles | undefined {
  if (TLS_CERT_FILE === undefined || TLS_KEY_FILE === undefined) return undefined;
  return { certFile: TLS_CERT_FILE, keyFile: TLS_KEY_FILE };
}

/** Counts connections above a limit and logs them at most once a second, because they occur in large numbers. */
function countRefusals(metrics: Metrics, logger: Logger): (limit: ConnectionLimit) => void {
  const count = metrics.counter('gateway_connections_refused_total', 'Connections over a limit.', 'limit', [
    'address',
    'total',
  ]);
  let loggedAt = Number.NEGATIVE_INFINITY;
  return (limit) => {
    count(limit);
    if (performance.now() - loggedAt < 1_000) return;
    loggedAt = performance.now();
    logger.warn({ limit }, 'too many connections');
  };
}
