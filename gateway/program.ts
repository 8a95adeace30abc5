import cluster from 'node:cluster';
import { createLogger } from '../shared/process/logger.ts';
import { run } from '../shared/process/run.ts';
import { readGatewaySettings } from './config.ts';
import { startGateway } from './start.ts';
import { startPrimary } from './workers/primary.ts';
import { startWorker, workerNumber } from './workers/worker.ts';

await run(async () => {
  // A worker's argument is its number.
  const settings = readGatewaySettings(process.env, cluster.isWorker ? [] : process.argv.slice(2));
  const logger = createLogger('gateway', settings.LOG_LEVEL, workerNumber());
  const start = cluster.isWorker ? startWorker : settings.WORKERS > 1 ? startPrimary : startGateway;
  return { running: await start(settings, logger), logger };
});
