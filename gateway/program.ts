import cluster from 'node:cluster';
import { createLogger, type Logger } from '../shared/process/logger.ts';
import { type Running, run } from '../shared/process/run.ts';
import { type GatewaySettings, readGatewaySettings } from './config.ts';

type Start = (settings: GatewaySettings, logger: Logger, worker: number) => Promise<Running>;

/** Of a worker; its primary gives it. */
const number = Number(process.argv[2]);

await run(async () => {
  const settings = readGatewaySettings(process.env, cluster.isWorker ? [] : process.argv.slice(2));
  const logger = createLogger('gateway', settings.LOG_LEVEL, cluster.isWorker ? number : undefined);
  const start = await startOf(settings);
  return { running: await start(settings, logger, number), logger };
});

/** Each process loads the code of its role only. */
async function startOf({ REDIS_URL }: GatewaySettings): Promise<Start> {
  if (cluster.isWorker) return (await import('./primary/worker.ts')).startWorker;
  if (REDIS_URL !== undefined) return (await import('./primary/primary.ts')).startPrimary;
  return (await import('./embedded.ts')).startEmbedded;
}
