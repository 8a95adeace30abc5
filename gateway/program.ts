import cluster from 'node:cluster';
import { setFlagsFromString } from 'node:v8';
import { readInstead } from '../shared/process/env.ts';
import { takeLogDescriptor } from '../shared/process/log-descriptor.ts';
import { createLogger, type Logger } from '../shared/process/logger.ts';
import { run, type Starting } from '../shared/process/run.ts';
import { type GatewaySettings, readGatewaySettings } from './config.ts';
import { ASKS_FOR_FILES, filesOfPrimary } from './primary/last-good-files.ts';

/** The number of this worker, as passed by its primary. */
const number = Number(process.argv[2]);

/**
 * With these flags, V8 collects garbage sooner and optimizes less code, which saves the primary 20 MB. Every process
 * loads its code with them, because compiled code in the cache is only valid for the flags that it was compiled with.
 */
const SMALL = ['--semi-space-growth-factor=1', '--optimize-for-size'];
const FAST = ['--semi-space-growth-factor=2', '--no-optimize-for-size'];

export const runGateway = () =>
  run(async () => {
    takeLogDescriptor(process.env);
    if (ASKS_FOR_FILES in process.env) readInstead(await filesOfPrimary());
    const settings = readGatewaySettings(process.env, cluster.isWorker ? null : process.argv.slice(2));
    const logger = createLogger('gateway', settings.LOG_LEVEL, cluster.isWorker ? number : undefined);
    const running = await startInRole(settings, logger);
    readInstead(undefined);
    return { running, logger };
  });

/** Each process loads the code of its role only. */
async function startInRole(settings: GatewaySettings, logger: Logger): Promise<Starting> {
  for (const flag of SMALL) setFlagsFromString(flag);
  if (cluster.isPrimary) {
    const { startPrimary } = await import('./primary/primary.ts');
    return await startPrimary(settings, logger, () => readGatewaySettings(process.env));
  }
  const { startWorker } = await import('./primary/worker.ts');
  for (const flag of FAST) setFlagsFromString(flag);
  return await startWorker(settings, logger, number);
}
