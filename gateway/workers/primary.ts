import { HttpError } from '../../shared/http/errors.ts';
import { sumOf } from '../../shared/process/counts.ts';
import { droppedLines, type Logger } from '../../shared/process/logger.ts';
import { createMetrics } from '../../shared/process/metrics.ts';
import type { Running } from '../../shared/process/run.ts';
import type { GatewaySettings } from '../config.ts';
import { openBackend } from '../open-backend.ts';
import { serveOperators } from '../serve-operators.ts';
import { LevelsOfMachine } from './levels-of-machine.ts';
import { Workers } from './workers.ts';

/**
 * The gateway in several processes: this one serves operators and supervises the workers, which serve clients.
 * @throws the workers' error when the first ones cannot start
 */
export async function startPrimary(settings: GatewaySettings, logger: Logger): Promise<Running> {
  const metrics = createMetrics('gateway_admin');
  const countCrash = metrics.counter('gateway_worker_crashes_total', 'Workers that ended without being asked to.');
  const workers = new Workers(settings.WORKERS, logger, countCrash);
  metrics.gauge('gateway_workers_serving', 'Workers that serve clients.', () => workers.serving);
  metrics.counts(() => sumOf([workers.counted(), [droppedLines('gateway')]]));
  process.on('SIGHUP', () => workers.renew());

  const backend = await openBackend(settings, logger);
  new LevelsOfMachine(() => backend.planCache.table).listen();
  const operators = await serveOperators(settings, backend, logger, {
    metrics: { ...metrics, expose: async () => await metrics.expose(await workers.metrics()) },
    decisions: workers,
    banned: () => workers.banned(),
    workers: () => ({ serving: workers.serving, wanted: settings.WORKERS, each: workers.states() }),
    processes: () => workers.processes(),
    isLocal: () => workers.isLocal,
    async check() {
      if (workers.stopping) throw new HttpError('unavailable', 'The service is stopping.');
      if (workers.serving === 0) throw new HttpError('unavailable', 'No worker serves.');
    },
  });
  return {
    addresses: { gateway: await workers.start(), admin: operators.url },
    async stop(lameDuckMs, lingerMs) {
      await workers.stop({ lameDuckMs, lingerMs });
      await operators.stop();
      await backend.close();
    },
  };
}
