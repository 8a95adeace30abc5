import { CoreSettings } from '../core/config.ts';
import { GatewaySettings } from '../gateway/config.ts';
import { readSettings, type Settings } from '../shared/process/env.ts';

const { HOST, PORT, DATABASE_URL } = CoreSettings.shape;

/**
 * The settings of `npm start`: those of both services, which share one environment. Both read HOST and PORT, so the
 * core's have other names.
 */
export const LocalSettings = GatewaySettings.safeExtend({
  CORE_HOST: HOST.describe('address of the core'),
  CORE_PORT: PORT.describe('port of the core; 0 picks a free one'),
  DATABASE_URL: DATABASE_URL.unwrap().optional().describe('database of the core. Unset: a SQLite file in `DATA_DIR`'),
});

export type LocalSettings = Settings<typeof LocalSettings>;

/** CORE_URL is not among them: a core of its own is started. */
const { CORE_URL: _, ...shape } = LocalSettings.shape;

export const LOCAL_PROGRAM = {
  about: 'Core and gateway on this machine, with embedded storage and a demo key per plan. Ctrl-C stops both.',
  command: 'npm start',
  settings: shape,
};

/** @throws {SettingsError} naming every fault of both services' settings, and every argument */
export const readLocalSettings = (environment: NodeJS.ProcessEnv, args: readonly string[]): LocalSettings =>
  readSettings(LocalSettings, { ...environment, CORE_URL: 'http://127.0.0.1' }, args);
