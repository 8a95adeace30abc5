import { z } from 'zod';
import { host, integer, logLevel, port, readSettings, type Settings, tokens } from '../shared/process/env.ts';

const databaseUrl = z
  .string()
  .regex(/^(?:sqlite:|postgres(?:ql)?:\/\/).+$/, 'must be sqlite:<path> or postgres://…')
  .refine(
    (url) => !url.startsWith('postgres') || isUrl(url),
    'must be a URL in which special characters are percent-encoded, for example # in a password as %23',
  )
  .meta({ secret: true });

/** A / or # in a password ends the host too early, so that an @ follows it. A URL without a host names a socket. */
const isUrl = (url: string): boolean =>
  URL.canParse(url.replace('@/', '@localhost/')) && !/^\w+:\/\/[^@/?#]*[/#][^?]*@/.test(url);

/** The core's settings, one line each: name, check, default, and the description for --help and deploy/SETTINGS.md. */
export const CoreSettings = z.object({
  HOST: host.default('127.0.0.1').describe('address to listen on'),
  PORT: port().default(7001).describe('port to listen on; 0 picks a free one'),
  DATABASE_URL: databaseUrl
    .default('sqlite:.data/store.db')
    .describe('database for pets and orders; `postgres://…` for more than one core'),
  CORE_TOKEN: tokens.optional().describe('bearer token for callers; any token in a comma-separated list is accepted'),
  BODY_LIMIT_BYTES: integer(1, 16_777_216).default(65_536).describe('largest request body'),
  LOG_LEVEL: logLevel,
});

export type CoreSettings = Settings<typeof CoreSettings>;

/** @throws {SettingsError} naming every fault */
export const readCoreSettings = (environment: NodeJS.ProcessEnv, args?: readonly string[]): CoreSettings =>
  readSettings(CoreSettings, environment, args);
