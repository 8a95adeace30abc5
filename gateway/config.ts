import { z } from 'zod';
import { listed } from '../shared/lists.ts';
import {
  addressBlock,
  host,
  integer,
  isLoopback,
  logLevel,
  port,
  readSettings,
  type Settings,
  token,
  tokens,
} from '../shared/process/env.ts';
import type { Logger } from '../shared/process/logger.ts';
import { currentSecret } from '../shared/process/secret.ts';
import { certificateFaults } from './certificate.ts';
import { caFile, masterName, redisFaults, redisMode, redisUrls } from './redis-settings.ts';
import { ACTIVITY_LENGTH } from './stores/activity-entry.ts';
import { coreUrlFault } from './upstream/core-url.ts';
import { webhookSecret, webhookUrl } from './webhooks/settings.ts';

const coreUrls = z
  .string()
  .transform(listed)
  .pipe(
    z.array(
      z.string().superRefine((text, context) => {
        const message = coreUrlFault(text);
        if (message !== undefined) context.addIssue({ code: 'custom', message });
      }),
    ),
  );

/** Headers that hold secrets must not get into the activity. */
const actorHeader = z
  .string()
  .regex(/^[\w-]{1,64}$/, 'must be the name of a header')
  .transform((name) => name.toLowerCase())
  .refine((name) => !['authorization', 'proxy-authorization', 'cookie'].includes(name), {
    error: 'must not be a header that holds a secret',
  });

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

/** The faults of the two TLS settings: the setting and the message. */
function tlsFaults(certFile?: string, keyFile?: string): [setting: string, error: string][] {
  if (certFile === undefined && keyFile === undefined) return [];
  if (certFile === undefined) return [['TLS_CERT_FILE', 'is required with TLS_KEY_FILE']];
  if (keyFile === undefined) return [['TLS_KEY_FILE', 'is required with TLS_CERT_FILE']];
  return certificateFaults({ certFile, keyFile }).map(({ file, message }) => [FILE_SETTINGS[file], message]);
}

/** Exactly as a browser sends it in Origin. */
const isBrowserOrigin = (text: string): boolean =>
  /^https?:/.test(text) && URL.canParse(text) && new URL(text).origin === text;

/** The gateway's settings, one line each: name, check, default and the description for the README's table. */
export const GatewaySettings = z
  .object({
    HOST: host.default('127.0.0.1').describe('address where clients reach it'),
    PORT: port().default(8080).describe('their port; 0 takes a free one'),
    CORE_URL: coreUrls
      .default(['http://127.0.0.1:7001'])
      .describe(
        'where the core answers; several with commas between. A name is resolved every 2 s, and each of its addresses is a core. `http+srv://_core._tcp.example.com` asks for SRV records, `https+srv://` likewise; `unix:/run/core.sock` is a socket',
      ),
    CORE_TOKEN: tokens
      .optional()
      .describe('bearer token that the core asks for; of several with commas between, the first. None when unset'),
    REDIS_URL: redisUrls
      .meta({ secret: true })
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
    REDIS_SENTINEL_PASSWORD: z
      .string()
      .meta({ secret: true })
      .optional()
      .describe('password at the sentinels; none when unset'),
    REDIS_CA_FILE: caFile
      .optional()
      .describe(
        'CA certificates, in PEM, that `rediss://` is checked with, read for every new connection; those of Node when unset',
      ),
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
        "operators' bearer token, with every right; required when `ADMIN_HOST` is not loopback. When unset one is made, and kept in `DATA_DIR/admin-token`",
      ),
    ACTOR_HEADER: actorHeader
      .optional()
      .describe(
        'header in which a proxy that signs operators in tells who they are, such as `X-Forwarded-User`; believed from `TRUSTED_PROXIES` only. None when unset',
      ),
    ACTIVITY_LENGTH: integer(100, 1_000_000)
      .default(ACTIVITY_LENGTH)
      .describe("entries of the operators' activity that are kept, some 220 bytes each"),
    RATELIMIT_FIELDS: z
      .enum(['on', 'off'], { error: 'must be on or off' })
      .default('on')
      .describe("on or off: whether the IETF draft's `RateLimit` fields are sent"),
    CORS_ORIGINS: corsOrigins
      .default([])
      .describe(
        'origins whose pages may call from a browser, with commas between, or `*` for any. A page that calls has its key in the browser, for anyone there to read. None when unset',
      ),
    WEBHOOK_URL: webhookUrl
      .optional()
      .describe(
        'where a key that has used 80 or 100 % of its day limit, or is banned, is told of by POST; nowhere when unset',
      ),
    WEBHOOK_SECRET: webhookSecret
      .meta({ secret: true })
      .optional()
      .describe(
        'at least 24 bytes that its signature is made with, as base64 behind `whsec_` or as text; required with `WEBHOOK_URL`',
      ),
    DATA_DIR: z.string().default('.data').describe('where an embedded limiter keeps keys and plans'),
    LOG_LEVEL: logLevel.default('info').describe('fatal, error, warn, info, debug, trace or silent'),
  })
  .refine(({ ADMIN_HOST, ADMIN_TOKEN }) => ADMIN_TOKEN !== undefined || isLoopback(ADMIN_HOST), {
    path: ['ADMIN_TOKEN'],
    error: 'is required when ADMIN_HOST is not a loopback address',
    when: () => true,
  })
  .refine(({ ACTOR_HEADER, TRUSTED_PROXIES }) => ACTOR_HEADER === undefined || TRUSTED_PROXIES?.length !== 0, {
    path: ['TRUSTED_PROXIES'],
    error: 'is required with ACTOR_HEADER: it names the proxies whose header is believed',
    when: () => true,
  })
  .refine(({ WORKERS, REDIS_URL }) => !(WORKERS > 1) || REDIS_URL !== undefined, {
    path: ['WORKERS'],
    error: 'must be 1 without REDIS_URL: what is embedded in one process is not shared',
    when: () => true,
  })
  .refine(({ WEBHOOK_URL, WEBHOOK_SECRET }) => WEBHOOK_URL === undefined || WEBHOOK_SECRET !== undefined, {
    path: ['WEBHOOK_SECRET'],
    error: 'is required with WEBHOOK_URL',
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

export type GatewaySettings = Settings<typeof GatewaySettings>;

/** @throws {SettingsError} naming every fault */
export const readGatewaySettings = (environment: NodeJS.ProcessEnv, args?: readonly string[]): GatewaySettings =>
  readSettings(GatewaySettings, environment, args);

/** How long a token that was read from a file is used before the file is read again. */
const TOKEN_AGE_MS = 1_000;

/** The token that is sent to the core: the first of several. */
export function coreTokenOf(settings: GatewaySettings, logger: Logger): () => string | undefined {
  const tokens = currentSecret(GatewaySettings, settings, 'CORE_TOKEN', { logger, maxAgeMs: TOKEN_AGE_MS });
  return () => tokens()?.[0];
}

/** The operators' token; undefined if none is set. */
export const adminTokenOf = (settings: GatewaySettings, logger: Logger): (() => string | undefined) =>
  currentSecret(GatewaySettings, settings, 'ADMIN_TOKEN', { logger, maxAgeMs: TOKEN_AGE_MS });
