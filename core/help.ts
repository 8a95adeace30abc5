import { printHelp } from '../shared/process/help.ts';
import { CoreSettings } from './config.ts';

printHelp({
  about: 'The core: stores pets and orders, in SQLite or PostgreSQL.',
  command: 'node core/main.ts',
  settings: CoreSettings.shape,
});
