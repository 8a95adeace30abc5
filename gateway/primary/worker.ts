import cluster from 'node:cluster';
import type { Logger } from '../../shared/process/logger.ts';
import { createMetrics } from '../../shared/process/metrics.ts';
import type { Running } from '../../shared/process/run.ts';
import type { GatewaySettings } from '../config.ts';
import type { KnownKeys } from '../limiter/known-keys.ts';
import { openBackend } from '../open-backend.ts';
import { serveClients } from '../start.ts';
import { Channel } from './channel.ts';
import { KeysOfMachine } from './keys-of-machine.ts';
import type { AskedOfPrimary, AskedOfWorker, WorkerReport } from './messages.ts';

/** Also shows the primary that this worker does not hang. */
const REPORT_EVERY_MS = 500;

/** A worker: serves clients on the port shared by all workers. Operators talk to the primary. @param number its own */
export async function startWorker(settings: GatewaySettings, logger: Logger, number: number): Promise<Running> {
  // A closing terminal signals all its processes; only the primary must react.
  process.on('SIGHUP', () => {});
  let known: KnownKeys | undefined;
  let report: (() => WorkerReport) | undefined;
  const metrics = createMetrics('gateway', number);
  const primary = new Channel<AskedOfPrimary, AskedOfWorker>(process, {
    report: async () => report && { ...report(), metrics: await metrics.snapshot() },
    decisions: (query) => backend.recent.find(query),
    key: (id) => known?.tell(id),
  });
  const reportNow = () => primary.tell('report', report?.());
  const reporting = setInterval(reportNow, REPORT_EVERY_MS).unref();
  const order = await primary.ask('start', undefined);
  const backend = await openBackend(settings, logger, {
    localsOf(own) {
      known = own;
      return new KeysOfMachine(own, primary);
    },
    plans: order?.plans,
    withinMs: order?.redisWithinMs,
  });
  if (order?.mustLoad) await backend.loaded;
  const clients = await serveClients(settings, backend, logger, metrics, (event) => primary.tell('happened', event));
  report = () => ({
    counted: metrics.counted(),
    isLoaded: backend.isLoaded(),
    isLocal: backend.nodesAway() > 0,
    banned: backend.banned.latest(),
    cores: clients.cores(),
    redis: backend.redis(),
  });
  void backend.loaded.then(reportNow);
  outliveThePrimary();
  return {
    addresses: { gateway: clients.url },
    async stop(lameDuckMs, lingerMs) {
      await clients.stop({ lameDuckMs, lingerMs });
      clearInterval(reporting);
      // The answer shows that the last counts have arrived.
      await primary.ask('report', report?.());
      await backend.close();
    },
  };
}

/**
 * By default, node:cluster ends a worker at once when its primary is gone. With this mark a serving worker finishes its
 * requests; one that does not serve yet still ends at once.
 */
function outliveThePrimary(): void {
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
}
