import { HttpError } from '../shared/http/errors.ts';
import { startServer } from '../shared/http/server.ts';
import { bearerTokens, createService } from '../shared/http/service.ts';
import { Histogram } from '../shared/process/counts.ts';
import { droppedLines, type Logger } from '../shared/process/logger.ts';
import { createMetrics, type Metrics } from '../shared/process/metrics.ts';
import { every } from '../shared/process/repeat.ts';
import type { Running } from '../shared/process/run.ts';
import { currentSecret } from '../shared/process/secret.ts';
import { CoreSettings } from './config.ts';
import { ROUTES } from './routes.ts';
import { DatabaseUrl, explainStart } from './store/database-url.ts';
import { forgetAnswers } from './store/idempotency.ts';
import { PostgresStore } from './store/postgres.ts';
import { SqliteStore } from './store/sqlite.ts';
import { countFaults, STORE_FAULTS, type Store } from './store/store.ts';

const FORGET_EVERY_MS = 3_600_000;
/** Twice the gateway's limit, because the gateway adds headers. */
const MAX_HEADER_BYTES = 32_768;
/** The number of requests on one connection that are served concurrently. Gateways pipeline their reads. */
const UNANSWERED = 16;
/** How long tokens from a file are used before the file is read again. */
const TOKEN_AGE_MS = 1_000;

/** Starts the core: store, operations, server. It stops in reverse order. */
export async function startCore(settings: CoreSettings, logger: Logger): Promise<Running> {
  const metrics = createMetrics('core');
  metrics.counts(() => [droppedLines('core')]);
  const url = currentSecret(CoreSettings, settings, 'DATABASE_URL', { logger, maxAgeMs: 0 });
  const store = await openStore(url, metrics);
  const stopForgetting = forgetRegularly(store, logger);
  const service = createService({
    routes: ROUTES,
    deps: { store, bodyLimitBytes: settings.BODY_LIMIT_BYTES },
    logger,
    metrics,
    access: bearerTokens(currentSecret(CoreSettings, settings, 'CORE_TOKEN', { logger, maxAgeMs: TOKEN_AGE_MS })),
    async check() {
      if (server.stopping) throw new HttpError('unavailable', 'The service is stopping.');
      await store.check();
      return undefined;
    },
  });
  const server = await startServer({
    host: settings.HOST,
    port: settings.PORT,
    ...service,
    maxHeaderBytes: MAX_HEADER_BYTES,
    limits: { unanswered: UNANSWERED },
  });
  let stopped: Promise<void> | undefined;
  async function stop(lameDuckMs: number | undefined): Promise<void> {
    await server.stop({ lameDuckMs });
    stopForgetting();
    await store.close();
  }
  return {
    addresses: { core: server.url },
    stop(lameDuckMs) {
      stopped ??= stop(lameDuckMs);
      return stopped;
    },
  };
}

async function openStore(url: () => string, metrics: Metrics): Promise<Store> {
  const count = metrics.counter(
    'core_store_errors_total',
    'Transactions and checks that failed in the database, by kind.',
    'kind',
    STORE_FAULTS,
  );
  const store = await openDatabase(url, metrics).catch((fault: unknown) => {
    throw new Error(explainStart(url(), fault), { cause: fault });
  });
  return countFaults(store, count);
}

async function openDatabase(current: () => string, metrics: Metrics): Promise<Store> {
  const url = current();
  if (!url.startsWith('sqlite:')) return await PostgresStore.open(new DatabaseUrl(current));
  const writes = new Histogram(
    { name: 'core_commit_writes', help: 'Writes in one commit.' },
    [1, 2, 4, 8, 16, 32, 64, 128, 256],
  );
  const seconds = new Histogram(
    { name: 'core_commit_seconds', help: 'Duration of one commit.' },
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1],
  );
  metrics.counts(() => [writes.family(), seconds.family()]);
  return new SqliteStore(url.slice('sqlite:'.length), (count, time) => {
    writes.observe(count);
    seconds.observe(time);
  });
}

/** Deletes expired stored responses, now and every hour. */
function forgetRegularly(store: Store, logger: Logger): () => void {
  const forget = () =>
    store
      .write(() => forgetAnswers(Date.now()))
      .catch((cause) => logger.warn({ err: cause }, 'expired idempotency keys not deleted'));
  void forget();
  return every(FORGET_EVERY_MS, forget);
}
