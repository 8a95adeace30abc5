import { z } from 'zod';
import { host, integer, logLevel, port, readSettings, token } from '../shared/env.ts';

const databaseUrl = z.string().regex(/^(?:sqlite:|postgres(?:ql)?:\/\/).+$/, 'must be sqlite:<path> or postgres://…');

/** The core's settings: name, check, default and, for the README's table, what it is; a line each. */
export const CoreSettings = z.object({
  HOST: host.default('127.0.0.1').describe('address where callers reach it'),
  PORT: port().default(7001).describe('their port; 0 takes a free one'),
  DATABASE_URL: databaseUrl
    .default('sqlite:.data/store.db')
    .describe('where animals and orders are kept; `postgres://…` for more than one core'),
  CORE_TOKEN: token.optional().describe('bearer token that every caller must carry; none when unset'),
  BODY_LIMIT_BYTES: integer(1, 16_777_216).default(65_536).describe('largest request body'),
  LOG_LEVEL: logLevel.default('info').describe('fatal, error, warn, info, debug, trace or silent'),
});

export type CoreSettings = z.infer<typeof CoreSettings>;

/** @throws {SettingsError} naming every fault */
export const readCoreSettings = (environment: NodeJS.ProcessEnv): CoreSettings =>
  readSettings(CoreSettings, environment);
