import { flushCompileCache } from 'node:module';
import { HttpError } from '../../shared/http/errors.ts';
import { LONGEST_USE_MS } from '../../shared/http/server.ts';
import { Counter, sumOf } from '../../shared/process/counts.ts';
import { droppedLines, type Logger } from '../../shared/process/logger.ts';
import { every } from '../../shared/process/repeat.ts';
import { type Running, type Starting, tryPort } from '../../shared/process/run.ts';
import { type GatewaySettings, webhookSecretOf } from '../config.ts';
import { Clients } from '../limiter/clients.ts';
import type { PlannedBackend } from '../open-backend.ts';
import type { OperatorsServer } from '../serve-operators.ts';
import { Webhooks } from '../webhooks/webhooks.ts';
import { actOn } from './changes.ts';
import type { Changed } from './channel.ts';
import { lastGoodFiles } from './last-good-files.ts';
import { levelsOfMachine } from './local-decisions.ts';
import { keyOwner, logFaults } from './without-redis.ts';
import { endLeftBehind, WorkerProcess } from './worker-process.ts';
import { Workers } from './workers.ts';

const WATCH_MS = 100;
const LOOK_EVERY_MS = 1_000;

/**
 * The gateway: this process serves operators and supervises the workers, which serve clients. The workers start before
 * this process loads what operators need, and the gateway can be stopped during this load. Without Redis, this process
 * opens the storage.
 * @param readAgain reads the settings, and throws if they are invalid
 * @returns `addresses`, which rejects with the errors of workers that cannot start and of the operators' listener
 * @throws if DATA_DIR or a port cannot be used
 */
export async function startPrimary(
  settings: GatewaySettings,
  logger: Logger,
  readAgain: () => GatewaySettings,
): Promise<Starting> {
  const begun = Promise.withResolvers<Workers>();
  process.on('SIGHUP', () => void begun.promise.then((workers) => workers.renew()));
  const owner = settings.REDIS_URL === undefined ? await openStorage(settings, () => workers.all()) : undefined;
  const storage = owner?.storage;
  // If the only worker is replaced, its successor must get the same port, so a free port is chosen here.
  const port = settings.PORT === 0 ? await tryPort(settings.HOST, 0, 'PORT') : settings.PORT;
  await endLeftBehind(port, logger);
  // These checks run before any worker serves. A PORT in use does not abort the start by itself, because the process
  // that uses it may be about to exit.
  const tried = await Promise.allSettled([
    tryPort(settings.HOST, port, 'PORT'),
    tryPort(settings.ADMIN_HOST, settings.ADMIN_PORT, 'ADMIN_PORT'),
  ]);
  if (tried[1].status === 'rejected') throw new AggregateError(reasonsOf(tried));
  let backend: PlannedBackend | undefined;
  let operators: OperatorsServer | undefined;
  let hasLoaded = false;
  const clients = new Clients(() => backend?.planCache.ifKnown);
  const levels = levelsOfMachine(clients, () => workers.channels());
  const opened = Promise.withResolvers<PlannedBackend>();
  const keys = opened.promise.then((backend) => backend.keys);
  const webhookSecret = webhookSecretOf(settings, logger);
  // Without events, this alone notices that the file has changed.
  every(LOOK_EVERY_MS, webhookSecret);
  const webhooks = new Webhooks(keys, logger, { url: settings.WEBHOOK_URL, secret: webhookSecret });
  const crashes = new Counter({ name: 'gateway_worker_crashes_total', help: 'Workers that crashed.' });
  crashes.declare('');
  const filesInsteadOfBad = lastGoodFiles(readAgain);
  const workers = new Workers(settings.WORKERS, {
    logger,
    onCrash: () => crashes.add(),
    onReplaced: ({ channel }) => void (owner === undefined && levels.takeOver(channel)),
    // All connections close within this time: each serves one more request or becomes idle, and both have a time limit.
    replacedMs: LONGEST_USE_MS + settings.CORE_TIMEOUT_MS,
    launch(number, reason) {
      const worker: WorkerProcess = new WorkerProcess(number, port, filesInsteadOfBad(), {
        start: () => ({ reason, plans: backend?.planCache.stored }),
        report(report): undefined {
          hasLoaded ||= report?.isLoaded ?? false;
        },
        banned({ id, known }): undefined {
          // The worker may exit before it is asked for its keys.
          clients.takeOver(id, known, known.lastReply.at);
          void opened.promise.then((backend) => backend.noteBan(id));
        },
        happened: (happening) => void webhooks.send(happening),
        decide: levels.answer,
        refusals: (id) => operators?.refusals.of(id).catch(() => undefined),
        load: (id) => owner?.load(worker, id),
        save: ({ states, mustBeDurable }) => storage?.save(states, mustBeDurable) ?? false,
        call: (call) => owner?.call(call),
      });
      return worker;
    },
  });
  const watch = () => {
    const { isReadable = true, isMissing = false } = backend?.planCache ?? {};
    levels.watch((!isReadable && !isMissing) || workers.isLocal);
  };
  const unwatch = storage === undefined ? every(WATCH_MS, watch) : logFaults(storage, logger);
  // Saves the code that this process has compiled, so that workers can load it on a first start. `openOperators` does
  // so again.
  flushCompileCache();
  begun.resolve(workers);

  async function check(): Promise<string | undefined> {
    if (workers.stopping) throw new HttpError('unavailable', 'The service is stopping.');
    if (workers.serving === 0) throw new HttpError('unavailable', 'No worker is serving clients.');
    if (!hasLoaded)
      throw new HttpError('unavailable', 'No worker has read the plans and run the script of decisions yet.');
    return storage?.fault();
  }

  async function announce(changed: Changed): Promise<void> {
    await workers.confirm(changed);
    actOn(changed, clients, backend?.planCache);
  }

  /** Nobody waits for changes that are read from a log, so a worker that is slow to apply them is not killed. */
  async function doubt(changed: Changed): Promise<void> {
    for (const { channel } of workers.all()) channel.send('changed', changed);
    actOn(changed, clients, backend?.planCache);
  }

  async function openOperators(): Promise<string> {
    const { createMetrics } = await import('../../shared/process/metrics.ts');
    flushCompileCache();
    const metrics = createMetrics('gateway_admin');
    metrics.gauge('gateway_workers_serving', 'Workers that serve clients.', () => workers.serving);
    if (storage !== undefined)
      metrics.gauge('gateway_data_stored', 'Whether changes can be stored in DATA_DIR: 1 or 0.', () =>
        storage.fault() === undefined ? 1 : 0,
      );
    const { openBackend } = await import('../open-backend.ts');
    const { serveOperators } = await import('../serve-operators.ts');
    const own = await openBackend(settings, logger, { clients, announce, doubt, embedded: storage && { storage } });
    backend = own;
    opened.resolve(own);
    metrics.counts(() =>
      sumOf([workers.counted(), own.counted(), webhooks.counted(), [crashes.family(), droppedLines('gateway')]]),
    );
    operators = await serveOperators(settings, own, logger, {
      metrics: { ...metrics, expose: async () => await metrics.expose(await workers.metrics()) },
      requests: workers,
      banned: () => workers.processes().map(({ banned }) => banned),
      workers: () => ({ serving: workers.serving, wanted: settings.WORKERS, each: workers.states() }),
      processes: () => workers.processes(),
      isLocal: () => workers.isLocal,
      check,
    });
    return operators.url;
  }

  async function addresses(): Promise<Running['addresses']> {
    const both = [workers.start(), openOperators()] as const;
    try {
      const [gateway, admin] = await Promise.all(both);
      return { gateway, admin };
    } catch {
      const ends = await Promise.allSettled(both);
      if (!workers.stopping) workers.kill();
      throw new AggregateError(reasonsOf(ends));
    }
  }

  return {
    addresses: addresses(),
    async stop(lameDuckMs, lingerMs) {
      await workers.stop({ lameDuckMs, lingerMs });
      await webhooks.stop();
      await operators?.stop();
      await backend?.close();
      unwatch();
      await storage?.close();
    },
  };
}

const reasonsOf = (ends: readonly PromiseSettledResult<unknown>[]): unknown[] =>
  ends.flatMap((end) => (end.status === 'rejected' ? [end.reason] : []));

/** @throws {Error} with a message for operators, if another gateway uses DATA_DIR, or DATA_DIR cannot be used */
async function openStorage(
  { DATA_DIR, ACTIVITY_LENGTH: auditLength }: GatewaySettings,
  workers: () => readonly WorkerProcess[],
) {
  const { SqliteStorage } = await import('../stores/sqlite/storage.ts');
  return keyOwner(workers, (owner) => new SqliteStorage(DATA_DIR, { owner, auditLength }));
}
