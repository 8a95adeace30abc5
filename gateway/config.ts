import { z } from 'zod';
import {
  addressBlock,
  host,
  httpUrl,
  integer,
  isLoopback,
  logLevel,
  port,
  readSettings,
  token,
} from '../shared/env.ts';
import { listed } from '../shared/lists.ts';
import { certificateFaults } from './certificate.ts';
import { caFile, masterName, redisFaults, redisMode, redisUrls } from './redis-settings.ts';

const coreUrls = z
  .string()
  .transform(listed)
  .pipe(z.array(httpUrl.refine(isOrigin, 'must be origins like http://127.0.0.1:7001, without a path')).min(1));

const addressBlocks = z.string().transform(listed).pipe(z.array(addressBlock));

const corsOrigins = z
  .string()
  .transform(listed)
  .pipe(
    z.array(
      z.string().refine((text) => text === '*' || isBrowserOrigin(text), {
        error: 'must be * or origins like https://shop.example, without a path',
      }),
    ),
  );

const FILE_SETTINGS = { certFile: 'TLS_CERT_FILE', keyFile: 'TLS_KEY_FILE' } as const;

/** What is wrong with the two settings of TLS: which of them, and in which words. */
function tlsFaults(certFile?: string, keyFile?: string): [setting: string, error: string][] {
  if (certFile === undefined && keyFile === undefined) return [];
  if (certFile === undefined) return [['TLS_CERT_FILE', 'is required with TLS_KEY_FILE']];
  if (keyFile === undefined) return [['TLS_KEY_FILE', 'is required with TLS_CERT_FILE']];
  return certificateFaults({ certFile, keyFile }).map(({ file, message }) => [FILE_SETTINGS[file], message]);
}

function isOrigin(url: string): boolean {
  return URL.canParse(url) && new URL(url).href === `${new URL(url).origin}/`;
}

/** Letter for letter as a browser sends it in Origin. */
const isBrowserOrigin = (text: string): boolean =>
  /^https?:/.test(text) && URL.canParse(text) && new URL(text).origin === text;

/** The gateway's settings: name, check, default and, for the README's table, what it is; a line each. */
export const GatewaySettings = z
  .object({
    HOST: host.default('127.0.0.1').describe('address where clients reach it'),
    PORT: port().default(8080).describe('their port; 0 takes a free one'),
    CORE_URL: coreUrls
      .default(['http://127.0.0.1:7001'])
      .describe('where the core answers; several with commas between'),
    CORE_TOKEN: token.optional().describe('bearer token that the core asks for; none when unset'),
    REDIS_URL: redisUrls
      .optional()
      .describe(
        'where limits are shared; embedded in the process when unset. `rediss://` for TLS, user and password in it, special characters percent-encoded; for a cluster its nodes, for sentinels all of them, with commas between',
      ),
    REDIS_MODE: redisMode.default('single').describe('single, cluster or sentinel: what `REDIS_URL` names'),
    REDIS_MASTER_NAME: masterName.optional().describe('by which the sentinels know the primary; required for them'),
    REDIS_SENTINEL_USERNAME: z
      .string()
      .optional()
      .describe('user at the sentinels; the one in `REDIS_URL` is for the Redis behind them'),
    REDIS_SENTINEL_PASSWORD: z.string().optional().describe('password at the sentinels; none when unset'),
    REDIS_CA_FILE: caFile
      .optional()
      .describe('CA certificates, in PEM, that `rediss://` is checked with; those of Node when unset'),
    REDIS_TIMEOUT_MS: integer(1, 60_000).default(50).describe('after which a decision is given up'),
    CORE_TIMEOUT_MS: integer(1, 600_000).default(5_000).describe('after which an answer of the core is given up'),
    WORKERS: integer(1, 64)
      .default(1)
      .describe('processes that serve clients on `PORT`; more than one need a `REDIS_URL`'),
    BODY_LIMIT_BYTES: integer(1, 16_777_216).default(65_536).describe('largest request body'),
    TRUSTED_PROXIES: addressBlocks
      .default([])
      .describe(
        'addresses and CIDR blocks of our own proxies, with commas between: theirs are the only `X-Forwarded-*` that are believed',
      ),
    TLS_CERT_FILE: z
      .string()
      .optional()
      .describe(
        'certificate with its chain, in PEM: clients then speak TLS 1.2 or 1.3 to `PORT`, and nothing else. Looked at once a second: renewed files are served to new connections, bad ones raise an alarm and change nothing',
      ),
    TLS_KEY_FILE: z.string().optional().describe('its private key in PEM'),
    ADMIN_HOST: host.default('127.0.0.1').describe('address where operators reach it'),
    ADMIN_PORT: port().default(9090).describe('their port; 0 takes a free one'),
    ADMIN_TOKEN: token
      .optional()
      .describe(
        "operators' bearer token; required when `ADMIN_HOST` is not loopback. When unset one is made, and kept in `DATA_DIR/admin-token`",
      ),
    RATELIMIT_FIELDS: z
      .enum(['on', 'off'], { error: 'must be on or off' })
      .default('on')
      .describe("on or off: whether the IETF draft's `RateLimit` fields are sent"),
    CORS_ORIGINS: corsOrigins
      .default([])
      .describe(
        'origins whose pages may call from a browser, with commas between, or `*` for any. A page that calls has its key in the browser, for anyone there to read. None when unset',
      ),
    DATA_DIR: z.string().default('.data').describe('where an embedded limiter keeps keys and plans'),
    LOG_LEVEL: logLevel.default('info').describe('fatal, error, warn, info, debug, trace or silent'),
  })
  .refine(({ ADMIN_HOST, ADMIN_TOKEN }) => ADMIN_TOKEN !== undefined || isLoopback(ADMIN_HOST), {
    path: ['ADMIN_TOKEN'],
    error: 'is required when ADMIN_HOST is not a loopback address',
    when: () => true,
  })
  .refine(({ WORKERS, REDIS_URL }) => !(WORKERS > 1) || REDIS_URL !== undefined, {
    path: ['WORKERS'],
    error: 'must be 1 without REDIS_URL: what is embedded in one process is not shared',
    when: () => true,
  })
  .superRefine(
    (settings, context) => {
      const tls = tlsFaults(settings.TLS_CERT_FILE, settings.TLS_KEY_FILE);
      for (const [setting, message] of [...redisFaults(settings), ...tls])
        context.addIssue({ code: 'custom', path: [setting], message, input: undefined });
    },
    { when: () => true },
  );

export type GatewaySettings = z.infer<typeof GatewaySettings>;

/** @throws {SettingsError} naming every fault */
export const readGatewaySettings = (environment: NodeJS.ProcessEnv): GatewaySettings =>
  readSettings(GatewaySettings, environment);
