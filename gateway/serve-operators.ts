import { type RunningServer, type ServerLimits, startServer } from '../shared/http/server.ts';
import { createService } from '../shared/http/service.ts';
import type { Logger } from '../shared/process/logger.ts';
import { checkedSecretFiles } from '../shared/process/secret.ts';
import { adminTokenOf, coreTokenOf, GatewaySettings } from './config.ts';
import type { PlannedBackend } from './open-backend.ts';
import { OperatorsAccess } from './operators/api/access.ts';
import { lastBackup } from './operators/api/backup.ts';
import { checkPlans, checkSettingFiles, checkTokens, checkWorkers, keysCheck } from './operators/api/doctor.ts';
import { FindingsSince, Health } from './operators/api/health.ts';
import type { AboutGateway } from './operators/api/operation.ts';
import { answerPeer, checkPeers, ofAllGateways } from './operators/api/requests.ts';
import { ROUTES as ADMIN_ROUTES } from './operators/api/routes.ts';
import { checkCertificate, checkDecisions, checkFailures } from './operators/api/traffic.ts';
import { pageRoutes } from './operators/pages.ts';
import { keptToken, redactSecrets } from './operators/tokens.ts';
import { clientAddress, countedAs, networkOf, TrustedProxies } from './pipeline/client-http.ts';
import { checkedCaFile } from './redis-settings.ts';
import { CORE_READ } from './routes.ts';
import { checkAddresses } from './telemetry/check-addresses.ts';
import { KeyRefusals } from './telemetry/key-refusals.ts';
import { exposeBackup, exposeRedisMemory, totalsOf, WatchedTraffic } from './telemetry/state.ts';
import { checkCores } from './upstream/check-cores.ts';

/** Enough for a few people, the command line and Prometheus. */
const OPERATORS_LIMITS: Partial<ServerLimits> = { connections: 200, connectionsPerAddress: 50 };
const OPERATORS_HEAD_BYTES = 8_192;

export interface OperatorsServer extends Pick<RunningServer, 'url' | 'stop'> {
  /** The last refusals of a key, for its owner. */
  readonly refusals: KeyRefusals;
}

/** Opens the operators' listener. */
export async function serveOperators(
  settings: GatewaySettings,
  backend: PlannedBackend,
  logger: Logger,
  { isLocal, requests, banned, workers, processes, ...about }: AboutGateway,
): Promise<OperatorsServer> {
  const trustedProxies = new TrustedProxies(settings.TRUSTED_PROXIES);
  const coreToken = coreTokenOf(settings, logger);
  const countLoss = about.metrics.counter(
    'gateway_changes_lost_total',
    'How often this gateway has found that Redis had lost changes by operators.',
  );
  const { peers, ...stores } = await backend.operators(answerPeer(requests), countLoss);
  const ofAll = ofAllGateways(requests, peers);
  const traffic = new WatchedTraffic({ counted: about.metrics.counted, banned, isLocal, workers, processes });
  exposeRedisMemory(about.metrics, backend);
  exposeBackup(about.metrics, () => lastBackup(stores));
  const seldom = {
    'setting files': () =>
      checkSettingFiles([...checkedSecretFiles(GatewaySettings, settings), ...checkedCaFile(settings.REDIS_CA_FILE)]),
    keys: keysCheck(stores.keys, () => totalsOf(about.metrics.counted()).totals.admitted > 0),
    'operator tokens': () => checkTokens(stores.tokens),
    'client addresses': () => checkAddresses(settings.TRUSTED_PROXIES, about.metrics.counted()),
  };
  const quick = {
    async redis() {
      const found = await backend.check();
      return [...found, ...checkDecisions(processes(), found)];
    },
    certificate: () => checkCertificate(processes()),
    cores: () => checkCores(settings.CORE_URL, coreToken?.(), CORE_READ),
    workers: () => checkWorkers(workers?.()),
    'plan table': () => checkPlans(backend.planCache),
    gateways: () => checkPeers(peers),
    'requests to this gateway': () => checkFailures(traffic.lately()),
  };
  const health = new Health(quick, seldom);
  const server = await startServer({
    host: settings.ADMIN_HOST,
    port: settings.ADMIN_PORT,
    portSetting: 'ADMIN_PORT',
    ...createService({
      routes: [...ADMIN_ROUTES, ...pageRoutes()],
      deps: {
        planCache: backend.planCache,
        ...stores,
        logger,
        requests: ofAll,
        traffic,
        redisMode: settings.REDIS_URL === undefined ? ('embedded' as const) : settings.REDIS_MODE,
        findings: new FindingsSince(),
        checks: { ...quick, ...seldom },
        health,
      },
      logger,
      logsAs: 'operator request',
      cacheControl: 'no-store',
      redact: redactSecrets,
      access: new OperatorsAccess({
        host: settings.ADMIN_HOST,
        addressOf: (request) => networkOf(clientAddress(request, trustedProxies)),
        sharedToken: await sharedTokenOf(settings, logger),
        tokens: stores.tokens,
        actorHeader: settings.ACTOR_HEADER,
        isFromProxy: ({ socket }) => trustedProxies.peerOf(socket).isTrusted,
      }),
      ...about,
      check: async () => (await about.check()) ?? health.detail(),
    }),
    maxHeaderBytes: OPERATORS_HEAD_BYTES,
    limits: OPERATORS_LIMITS,
    countedAs: (remoteAddress) => countedAs(remoteAddress, trustedProxies),
  });
  peers?.start();
  return {
    url: server.url,
    refusals: new KeyRefusals((query) => ofAll.find(query)),
    async stop() {
      traffic.stop();
      health.stop();
      await server.stop();
      await peers?.stop();
    },
  };
}

/** Returns ADMIN_TOKEN or, if it is not set, the token that was read from DATA_DIR at the start. */
async function sharedTokenOf(settings: GatewaySettings, logger: Logger): Promise<() => string> {
  const current = adminTokenOf(settings, logger);
  const first = current() ?? (await keptToken(settings.DATA_DIR));
  return () => current() ?? first;
}
