import { printHelp } from '../shared/process/help.ts';
import { GatewaySettings } from './config.ts';

printHelp({
  about: 'The gateway: authenticates API keys, limits their rates, and forwards requests to the core.',
  command: 'node gateway/main.ts',
  settings: GatewaySettings.shape,
});
