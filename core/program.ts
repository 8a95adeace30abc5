import { takeLogDescriptor } from '../shared/process/log-descriptor.ts';
import { createLogger } from '../shared/process/logger.ts';
import { run } from '../shared/process/run.ts';
import { readCoreSettings } from './config.ts';
import { startCore } from './core.ts';

await run(async () => {
  takeLogDescriptor(process.env);
  const settings = readCoreSettings(process.env, process.argv.slice(2));
  const logger = createLogger('core', settings.LOG_LEVEL);
  return { running: await startCore(settings, logger), logger };
});
