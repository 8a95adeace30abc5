import cluster from 'node:cluster';
import { createLogger } from '../shared/logger.ts';
import { run } from '../shared/run.ts';
import { startPrimary } from './cluster/primary.ts';
import { startWorker, workerNumber } from './cluster/worker.ts';
import { readGatewaySettings } from './config.ts';
import { startGateway } from './start.ts';

await run(async () => {
  const settings = readGatewaySettings(process.env);
  const logger = createLogger('gateway', settings.LOG_LEVEL, workerNumber());
  const start = cluster.isWorker ? startWorker : settings.WORKERS > 1 ? startPrimary : startGateway;
  return { running: await start(settings, logger), logger };
});
