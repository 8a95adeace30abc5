import { createLogger } from '../shared/logger.ts';
import { run } from '../shared/run.ts';
import { readGatewaySettings } from './config.ts';
import { startGateway } from './start.ts';

await run(async () => {
  const settings = readGatewaySettings(process.env);
  const logger = createLogger('gateway', settings.LOG_LEVEL);
  return { running: await startGateway(settings, logger), logger };
});
