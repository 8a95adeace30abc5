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
import { LOG_LENGTHS, SHORTEST_AUDIT_LOG } from './stores/storage.ts';
import { coreUrlFault } from './upstream/core-addresses.ts';
import { webhookSecret, webhookUrl } from './webhooks/message.ts';

/** A comma-separated list of values that fit this schema. */
const separated = (entry: z.ZodString) => z.string().transform(listed).pipe(z.array(entry));

const coreUrls = separated(
  z.string().superRefine((text, context) => {
    const message = coreUrlFault(text);
    if (message !== undefined) context.addIssue({ code: 'custom', message });
  }),
);

/** Headers that hold secrets must not get into the audit log. */
const actorHeader = z
  .string()
  .regex(/^[\w-]{1,64}$/, 'must be a header name')
  .transform((name) => name.toLowerCase())
  .refine((name) => !['authorization', 'proxy-authorization', 'cookie'].includes(name), {
    error: 'must not be a header that holds a secret',
  });

const corsOrigins = separated(
  z.string().refine((text) => text === '*' || isBrowserOrigin(text), {
    error: 'must be * or origins like https://shop.example, without a path',
  }),
);

const onOff = z.enum(['on', 'off'], { error: 'must be on or off' });

const FILE_SETTINGS = { certFile: 'TLS_CERT_FILE', keyFile: 'TLS_KEY_FILE' } as const;

/** The faults in the two TLS settings, each with its setting and a message. */
function tlsFaults(certFile?: string, keyFile?: string): [setting: string, error: string][] {
  if (certFile === undefined && keyFile === undefined) return [];
  if (certFile === undefined) return [['TLS_CERT_FILE', 'is required with TLS_KEY_FILE']];
  if (keyFile === undefined) return [['TLS_KEY_FILE', 'is required with TLS_CERT_FILE']];
  return certificateFaults({ certFile, keyFile }).map(({ file, message }) => [FILE_SETTINGS[file], message]);
}

const RECENT_REQUESTS = 10_000;

/** The setting must equal what a browser sends in Origin. */
const isBrowserOrigin = (text: string): boolean =>
  /^https?:/.test(text) && URL.canParse(text) && new URL(text).origin === text;

/**
 * The gateway's settings, one line each: name, check, default, and the description for --help and deploy/SETTINGS.md.
 */
export const GatewaySettings = z
  .object({
    HOST: host.default('127.0.0.1').describe('address to listen on for clients'),
    PORT: port().default(8080).describe('port for clients; 0 picks a free one'),
    CORE_URL: coreUrls
      .default(['http://127.0.0.1:7001'])
      .describe(
        'core URLs, separated by commas. Names are resolved every 2 s; each address counts as a core. `http+srv://_core._tcp.example` and `https+srv://` look up SRV records; `unix:/run/core.sock` is a socket',
      ),
    CORE_TOKEN: tokens.optional().describe('bearer token for the core; of a comma-separated list, the first is sent'),
    REDIS_URL: redisUrls
      .meta({ secret: true })
      .optional()
      .describe(
        'Redis shared by all gateways; `rediss://` for TLS. Percent-encode special characters in the password. Cluster nodes or sentinels are separated by commas. Unset: the gateway stores keys and limits itself',
      ),
    REDIS_MODE: redisMode.default('single').describe('kind of Redis at `REDIS_URL`: single, cluster or sentinel'),
    REDIS_MASTER_NAME: masterName.optional().describe("name of the sentinels' primary; required with sentinels"),
    REDIS_SENTINEL_USERNAME: z
      .string()
      .optional()
      .describe('user name for the sentinels; the one in `REDIS_URL` is for Redis itself'),
    REDIS_SENTINEL_PASSWORD: z.string().meta({ secret: true }).optional().describe('password for the sentinels'),
    REDIS_CA_FILE: caFile
      .optional()
      .describe("CA certificates for `rediss://`, in PEM, read for each new connection. Unset: Node's own"),
    REDIS_TIMEOUT_MS: integer(1, 60_000).default(250).describe('time limit for a decision from Redis'),
    CORE_TIMEOUT_MS: integer(1, 600_000).default(5_000).describe('time limit for a response from the core'),
    CORE_CONCURRENCY: integer(1, 1_000)
      .optional()
      .describe(
        'number of requests that a worker sends to a core at once, for one client at most half; the rest take turns. Unset: no fixed number',
      ),
    WORKERS: integer(1, 64)
      .default(1)
      .describe('processes that serve clients on `PORT`; more than one requires `REDIS_URL`'),
    BODY_LIMIT_BYTES: integer(1, 16_777_216)
      .default(65_536)
      .describe("largest request body; a worker's unfinished bodies share 32 MB"),
    TRUSTED_PROXIES: separated(addressBlock)
      .default([])
      .describe(
        'addresses and CIDR blocks of your proxies, separated by commas; `X-Forwarded-*` is trusted only from them',
      ),
    TLS_CERT_FILE: z
      .string()
      .optional()
      .describe(
        'certificate with its chain, in PEM; `PORT` then speaks TLS 1.2 and 1.3 only. Read again every second; an invalid file raises an alert and is not used',
      ),
    TLS_KEY_FILE: z.string().optional().describe('private key of the certificate, in PEM'),
    ADMIN_HOST: host.default('127.0.0.1').describe('address to listen on for operators'),
    ADMIN_PORT: port().default(9090).describe('port for operators; 0 picks a free one'),
    ADMIN_TOKEN: token
      .optional()
      .describe(
        "operators' bearer token, with full access; required unless `ADMIN_HOST` is loopback. Unset: generated in `DATA_DIR/admin-token`",
      ),
    ACTOR_HEADER: actorHeader
      .optional()
      .describe("header with the operator's name, such as `X-Forwarded-User`; trusted only from `TRUSTED_PROXIES`"),
    ACTIVITY_LENGTH: integer(SHORTEST_AUDIT_LOG, 1_000_000)
      .default(LOG_LENGTHS.audit)
      .describe('number of entries in the audit log, about 220 bytes each'),
    RECENT_REQUESTS: integer(100, 1_000_000)
      .default(RECENT_REQUESTS)
      .describe('number of recent requests that each gateway keeps for operators, about 1.6 kB each'),
    RATELIMIT_FIELDS: onOff
      .default('on')
      .describe('whether to send the `RateLimit` fields of the IETF draft: on or off'),
    SERVER_TIMING: onOff.default('off').describe('whether responses have a `Server-Timing` header: on or off'),
    CORS_ORIGINS: corsOrigins
      .default([])
      .describe(
        'origins whose pages may send requests, separated by commas, or `*`. Such pages expose their API key to visitors',
      ),
    WEBHOOK_URL: webhookUrl
      .optional()
      .describe('URL that receives a POST when a key reaches 80 or 100 % of its day limit, or is banned. Unset: off'),
    WEBHOOK_SECRET: webhookSecret
      .meta({ secret: true })
      .optional()
      .describe(
        'secret that signs webhooks, at least 24 bytes, in base64 after `whsec_` or as text; required with `WEBHOOK_URL`',
      ),
    DATA_DIR: z
      .string()
      .default('.data')
      .describe('folder for `admin-token` and, without `REDIS_URL`, for keys and plans'),
    LOG_LEVEL: logLevel,
  })
  .refine(({ ADMIN_HOST, ADMIN_TOKEN }) => ADMIN_TOKEN !== undefined || isLoopback(ADMIN_HOST), {
    path: ['ADMIN_TOKEN'],
    error: 'is required when ADMIN_HOST is not a loopback address',
    when: () => true,
  })
  .refine(({ ACTOR_HEADER, TRUSTED_PROXIES }) => ACTOR_HEADER === undefined || TRUSTED_PROXIES?.length !== 0, {
    path: ['TRUSTED_PROXIES'],
    error: 'is required with ACTOR_HEADER: it names the proxies whose header is trusted',
    when: () => true,
  })
  .refine(({ WORKERS, REDIS_URL }) => !(WORKERS > 1) || REDIS_URL !== undefined, {
    path: ['WORKERS'],
    error: 'must be 1 without REDIS_URL: embedded storage cannot be shared',
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
export const readGatewaySettings = (environment: NodeJS.ProcessEnv, args?: readonly string[] | null): GatewaySettings =>
  readSettings(GatewaySettings, environment, args);

/** How long a token from a file is used before the file is read again. */
const TOKEN_AGE_MS = 1_000;

/** The token that is sent to the core: the first one, if there are several. @returns undefined if none is set */
export function coreTokenOf(settings: GatewaySettings, logger: Logger): (() => string | undefined) | undefined {
  if (settings.CORE_TOKEN === undefined && settings.secretFiles.CORE_TOKEN === undefined) return undefined;
  const tokens = currentSecret(GatewaySettings, settings, 'CORE_TOKEN', { logger, maxAgeMs: TOKEN_AGE_MS });
  return () => tokens()?.[0];
}

/** The operators' token; undefined if none is set. */
export const adminTokenOf = (settings: GatewaySettings, logger: Logger): (() => string | undefined) =>
  currentSecret(GatewaySettings, settings, 'ADMIN_TOKEN', { logger, maxAgeMs: TOKEN_AGE_MS });

/** The secret that signs webhooks. */
export const webhookSecretOf = (settings: GatewaySettings, logger: Logger): (() => string | undefined) =>
  currentSecret(GatewaySettings, settings, 'WEBHOOK_SECRET', { logger, maxAgeMs: TOKEN_AGE_MS });
