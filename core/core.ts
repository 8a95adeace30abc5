import { HttpError } from '../shared/errors.ts';
import { droppedLines, type Logger } from '../shared/logger.ts';
import { createMetrics, type Metrics } from '../shared/metrics.ts';
import type { Running } from '../shared/run.ts';
import { startServer } from '../shared/server.ts';
import { createService } from '../shared/service.ts';
import type { CoreSettings } from './config.ts';
import { ROUTES } from './routes.ts';
import { countFaults, STORE_FAULTS } from './store/count-faults.ts';
import { forgetAnswers } from './store/idempotency.ts';
import { PostgresStore } from './store/postgres.ts';
import { SqliteStore } from './store/sqlite.ts';
import { explainStart } from './store/start-fault.ts';
import type { Store } from './store/store.ts';

const FORGET_EVERY_MS = 3_600_000;
/** Twice the gateway's, which adds headers of its own to what it has taken. */
const MAX_HEADER_BYTES = 32_768;

/** Wires the core: store, then operations, then server; stops in reverse. */
export async function startCore(settings: CoreSettings, logger: Logger): Promise<Running> {
  const metrics = createMetrics('core');
  metrics.counts(() => [droppedLines('core')]);
  const store = await openStore(settings.DATABASE_URL, metrics);
  const stopForgetting = forgetRegularly(store, logger);
  const onRequest = createService({
    routes: ROUTES,
    parts: { store, bodyLimitBytes: settings.BODY_LIMIT_BYTES },
    logger,
    metrics,
    token: settings.CORE_TOKEN,
    async check() {
      if (server.stopping) throw new HttpError('unavailable', 'The service is stopping.');
      await store.check();
    },
  });
  const server = await startServer({
    host: settings.HOST,
    port: settings.PORT,
    onRequest,
    maxHeaderBytes: MAX_HEADER_BYTES,
  });
  return {
    addresses: { core: server.url },
    async stop(lameDuckMs) {
      await server.stop({ lameDuckMs });
      stopForgetting();
      await store.close();
    },
  };
}

async function openStore(url: string, metrics: Metrics): Promise<Store> {
  const count = metrics.counter(
    'core_store_errors_total',
    'Transactions and checks that the store failed, by kind.',
    'kind',
    STORE_FAULTS,
  );
  const store = await openDatabase(url, metrics).catch((fault: unknown) => {
    throw new Error(explainStart(url, fault), { cause: fault });
  });
  return countFaults(store, count);
}

async function openDatabase(url: string, metrics: Metrics): Promise<Store> {
  if (!url.startsWith('sqlite:')) return await PostgresStore.open(url);
  const observeWrites = metrics.histogram('commit_writes', 'Writes in one commit.', [1, 2, 4, 8, 16, 32, 64, 128, 256]);
  const observeSeconds = metrics.histogram(
    'commit_seconds',
    'Time of one commit.',
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1],
  );
  const onCommit = (writes: number, seconds: number) => {
    observeWrites(writes);
    observeSeconds(seconds);
  };
  return new SqliteStore(url.slice('sqlite:'.length), { onCommit });
}

/** Idempotent answers that are past their day, now and every hour. */
function forgetRegularly(store: Store, logger: Logger): () => void {
  const forget = () =>
    store
      .write(() => forgetAnswers(Date.now()))
      .catch((cause) => logger.warn({ err: cause }, 'old answers not forgotten'));
  void forget();
  const timer = setInterval(forget, FORGET_EVERY_MS).unref();
  return () => clearInterval(timer);
}
