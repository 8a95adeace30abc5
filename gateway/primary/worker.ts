import cluster from 'node:cluster';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Logger } from '../../shared/process/logger.ts';
import { createMetrics } from '../../shared/process/metrics.ts';
import { every } from '../../shared/process/repeat.ts';
import type { Starting } from '../../shared/process/run.ts';
import type { GatewaySettings } from '../config.ts';
import { Clients } from '../limiter/clients.ts';
import type { PlansInForce, StoredPlans } from '../limiter/plans.ts';
import { openBackend, type PlannedBackend } from '../open-backend.ts';
import { serveClients } from '../start.ts';
import { EmbeddedLimiter } from '../stores/embedded-limiter.ts';
import { actOn } from './changes.ts';
import { type AskedOfPrimary, type AskedOfWorker, Channel, type WorkerReport } from './channel.ts';
import { keysOfMachine } from './local-decisions.ts';
import { storageOfPrimary } from './without-redis.ts';

/** A report also shows the primary that this worker is not hanging. */
const REPORT_EVERY_MS = 500;
/**
 * Longer than the primary waits for other gateways. Otherwise the worker would miss the primary's answer, treat the
 * primary as silent and send it no more questions.
 */
const REFUSALS_WITHIN_MS = 3_000;
/** How long a replacement waits for Redis, which may be unavailable: its primary sends it the plans and decides for it. */
const REPLACED_WITHIN_MS = 250;

/**
 * A worker: serves clients on the port that all workers share. Operators connect to the primary.
 * @param number the worker's number
 */
export async function startWorker(settings: GatewaySettings, logger: Logger, number: number): Promise<Starting> {
  const clients = new Clients(
    () => opened?.planCache.ifKnown,
    undefined,
    ({ id }) => {
      const known = clients.known(id);
      if (known !== undefined) primary.send('banned', { id, known });
    },
  );
  let pages = clients.pages();
  let changedPlans: StoredPlans | undefined;
  let opened: PlannedBackend | undefined;
  let embedded: EmbeddedLimiter | undefined;
  let report: (() => WorkerReport) | undefined;
  const metrics = createMetrics('gateway', number);
  const primary = new Channel<AskedOfPrimary, AskedOfWorker>(process, {
    report: async () => report && { ...report(), metrics: await metrics.snapshot() },
    requests: async (query) => ({
      requests: (await opened?.recent.find(query)) ?? [],
      keptSince: opened?.recent.keptSince(query) ?? 0,
    }),
    key: (id) => clients.known(id),
    keys(page) {
      if (page === 'first') pages = clients.pages();
      return pages.next().value ?? [];
    },
    changed(changed) {
      if ('plans' in changed) changedPlans = changed.plans;
      actOn(changed, clients, opened?.planCache);
      return true;
    },
    async release({ id, isChanged }) {
      // The same message may have loaded the key, so requests that wait for the key are decided first.
      await nextTurn();
      const state = embedded?.release(id, isChanged);
      if (state !== undefined) primary.send('save', { states: [[id, state]], mustBeDurable: true });
      return true as const;
    },
    flush: () => embedded?.flush().then(() => true as const) ?? true,
  });
  const reportNow = () => primary.send('report', report?.());
  const endReports = every(REPORT_EVERY_MS, reportNow);
  const { reason, plans } = (await primary.ask('start', undefined)) ?? {};
  const storage = storageOfPrimary(primary);
  const limiterOf = (inForce: PlansInForce) => {
    embedded = new EmbeddedLimiter(storage, inForce);
    // Without the primary nothing can be stored, so nothing is admitted.
    process.once('disconnect', embedded.forgetAll);
    return embedded;
  };
  const backend = await openBackend(settings, logger, {
    embedded: settings.REDIS_URL === undefined ? { storage, limiterOf } : undefined,
    clients,
    locals: keysOfMachine(clients, primary),
    plans,
    isAtStart: reason === 'first',
    withinMs: reason === 'replacement' && plans !== undefined ? REPLACED_WITHIN_MS : undefined,
  });
  opened = backend;
  // The table that was read in the meantime may be older than the announced one.
  if (changedPlans !== undefined) backend.planCache.take(changedPlans);
  // A renewal waits for Redis, because the worker that it replaces is still serving.
  if (reason === 'renewal') await backend.loaded;
  const server = await serveClients(settings, backend, logger, metrics, {
    notify: (event) => primary.send('happened', event),
    refusals: (id) => primary.ask('refusals', id, REFUSALS_WITHIN_MS),
  });
  report = () => ({
    counted: metrics.counted(),
    isLoaded: backend.isLoaded(),
    isLocal: backend.nodesAway() > 0,
    banned: backend.banned.latest(),
    cores: server.cores(),
    redis: backend.redis(),
    certificate: server.certificate(),
  });
  void backend.loaded.then(reportNow);
  // By default, node:cluster kills a worker at once when its primary is gone. With this flag, a worker that is serving
  // finishes its requests first; one that is still starting exits at once.
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
  return {
    // Waits, so that the primary learns that the plans are loaded before it learns that this worker is serving.
    addresses: nextTurn()
      .then(() => nextTurn())
      .then(() => ({ gateway: server.url })),
    async stop(lameDuckMs, lingerMs) {
      await server.stop({ lameDuckMs, lingerMs });
      endReports();
      const last = report?.();
      await backend.close();
      // The answer confirms that the last counts and the state of each released key have arrived.
      await primary.ask('report', last);
    },
  };
}
