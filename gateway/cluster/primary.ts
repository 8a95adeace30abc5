import { sumOf } from '../../shared/counts.ts';
import { HttpError } from '../../shared/errors.ts';
import { droppedLines, type Logger } from '../../shared/logger.ts';
import { createMetrics } from '../../shared/metrics.ts';
import type { Running } from '../../shared/run.ts';
import type { GatewaySettings } from '../config.ts';
import { openAccess } from '../open-access.ts';
import { serveOperators } from '../start.ts';
import { LevelsOfMachine } from './levels-of-machine.ts';
import { Workers } from './workers.ts';

/**
 * The gateway in several processes: this one serves operators and looks after the workers, which serve clients.
 * @throws when the first workers cannot start, with what they said
 */
export async function startPrimary(settings: GatewaySettings, logger: Logger): Promise<Running> {
  const metrics = createMetrics('gateway_admin');
  const countCrash = metrics.counter('gateway_worker_crashes_total', 'Workers that ended without being asked to.');
  const workers = new Workers(settings.WORKERS, logger, countCrash);
  metrics.gauge('gateway_workers_serving', 'Workers that serve clients.', () => workers.serving);
  metrics.counts(() => sumOf([workers.counted(), [droppedLines('gateway')]]));
  process.on('SIGHUP', () => workers.renew());

  const access = await openAccess(settings, logger);
  new LevelsOfMachine(() => access.planCache.table).listen();
  const operators = await serveOperators(settings, access, logger, {
    metrics: { ...metrics, expose: async () => await metrics.expose(await workers.metrics()) },
    decisions: workers,
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
      await access.close();
    },
  };
}
