import { CoreSettings } from '../core/config.ts';
import { GatewaySettings } from '../gateway/config.ts';

const { HOST, PORT, DATABASE_URL } = CoreSettings.shape;
const { CORE_URL } = GatewaySettings.shape;

/**
 * The settings for `npm start`: those of both services, which share one environment. Both services read HOST and PORT,
 * so the core settings have other names here.
 */
export const LocalSettings = GatewaySettings.safeExtend({
  CORE_HOST: HOST.describe('address of the core'),
  CORE_PORT: PORT.describe('port of the core; 0 picks a free one'),
  DATABASE_URL: DATABASE_URL.unwrap().optional().describe('database of the core. Unset: a SQLite file in `DATA_DIR`'),
});

export const LOCAL_PROGRAM = {
  about: 'Core and gateway on this machine, with embedded storage and a demo key per plan. Ctrl-C stops both.',
  command: 'npm start',
  settings: {
    ...LocalSettings.shape,
    CORE_URL: CORE_URL.unwrap()
      .optional()
      .describe('URLs of your own API. Unset: a store is started at `CORE_HOST` and `CORE_PORT`'),
  },
};
