import { readGatewaySettings } from '../../gateway/config.ts';
import { createLogger } from '../../shared/process/logger.ts';
import { run } from '../../shared/process/run.ts';
import { startGateway } from '../support/one-process.ts';

/** The gateway's main program, with the server limits from the variable LIMITS, in JSON. */
await run(async () => {
  const { LIMITS = '{}', ...environment } = process.env;
  const settings = readGatewaySettings(environment);
  const logger = createLogger('gateway', settings.LOG_LEVEL);
  return { running: await startGateway(settings, logger, JSON.parse(LIMITS)), logger };
});
