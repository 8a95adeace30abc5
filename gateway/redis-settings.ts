import { X509Certificate } from 'node:crypto';
import { z } from 'zod';
import { listed } from '../shared/lists.ts';
import { readSettingFile } from '../shared/process/env.ts';
import type { SecretFile } from '../shared/process/secret.ts';
import { credentialsOf } from './stores/redis/target.ts';

/** Checks of the Redis settings, each by itself and all together. */

const redisUrl = z
  .url({ protocol: /^rediss?$/, error: 'must be a redis:// or rediss:// URL' })
  .refine((url) => !URL.canParse(url) || /^\/?\d*$/.test(new URL(url).pathname), {
    error: 'must name a database by its number, as in redis://host:6379/0',
  })
  .refine((url) => !URL.canParse(url) || isDecodable(url), {
    error: 'must have a user and password in percent-encoding, with %25 for each %',
  })
  // The client library would read options from the query. Some of them disable its safeguards.
  .refine((url) => !URL.canParse(url) || new URL(url).search + new URL(url).hash === '', {
    error: 'must not have a query or fragment',
  });

function isDecodable(url: string): boolean {
  try {
    credentialsOf(url);
    return true;
  } catch {
    return false;
  }
}

/** One URL, or several separated by commas. Each kind of fault is reported once. */
export const redisUrls = z.string().transform((text, context) => {
  const urls = listed(text);
  const issues = urls.flatMap((url) => redisUrl.safeParse(url).error?.issues ?? []);
  for (const message of new Set(issues.map((issue) => issue.message)))
    context.addIssue({ code: 'custom', message, continue: true });
  return urls;
});

export const redisMode = z.enum(['single', 'cluster', 'sentinel'], { error: 'must be single, cluster or sentinel' });

export const masterName = z.string().regex(/^[\w.-]+$/, 'must be the name that the sentinels use for the primary');

/** The path of a file that contains certificates. */
export const caFile = z.string().refine(hasCertificates, { error: 'must be a file that holds certificates in PEM' });

/** Checks the file of REDIS_CA_FILE as a start would, if there is one. */
export function checkedCaFile(path: string | undefined): SecretFile[] {
  if (path === undefined) return [];
  return [{ setting: 'REDIS_CA_FILE', path, fault: caFile.safeParse(path).error?.issues[0]?.message }];
}

function hasCertificates(path: string): boolean {
  try {
    return certificatesIn(readSettingFile(path)) !== '';
  } catch {
    return false;
  }
}

/** @throws {Error} if the text does not begin with a certificate in PEM */
export function certificatesIn(text: string): string {
  new X509Certificate(text);
  return text;
}

/** The settings read so far. Some of them may be invalid. */
interface RedisSettings {
  readonly REDIS_URL?: readonly string[] | undefined;
  readonly REDIS_MODE?: z.infer<typeof redisMode> | undefined;
  readonly REDIS_MASTER_NAME?: string | undefined;
  readonly REDIS_SENTINEL_USERNAME?: string | undefined;
  readonly REDIS_SENTINEL_PASSWORD?: string | undefined;
  readonly REDIS_CA_FILE?: string | undefined;
}

type Fault = readonly [setting: keyof RedisSettings, isFault: boolean, error: string];

/** Conflicts between settings, each with a setting and a message. */
export function redisFaults(settings: RedisSettings): (readonly [setting: keyof RedisSettings, error: string])[] {
  const { REDIS_MODE: mode, REDIS_URL: given } = settings;
  const urls = (given ?? []).filter((url) => URL.canParse(url)).map((url) => new URL(url));
  const faults: Fault[] = [
    ['REDIS_URL', given === undefined && isOfMany(mode), `is required when REDIS_MODE is ${mode}`],
    ['REDIS_URL', urls.length > 1 && mode === 'single', 'must be a single URL when REDIS_MODE is single'],
    ['REDIS_URL', new Set(urls.map(allButHost)).size > 1, 'must have the same protocol, user, password and database'],
    [
      'REDIS_URL',
      mode === 'cluster' && urls.some(hasDatabase),
      'must not name a database: a cluster has only database 0',
    ],
    [
      'REDIS_MASTER_NAME',
      mode === 'sentinel' && settings.REDIS_MASTER_NAME === undefined,
      'is required when REDIS_MODE is sentinel',
    ],
    [
      'REDIS_CA_FILE',
      settings.REDIS_CA_FILE !== undefined && urls.some(({ protocol }) => protocol !== 'rediss:'),
      'has no effect without rediss:// in REDIS_URL',
    ],
    [
      'REDIS_SENTINEL_PASSWORD',
      settings.REDIS_SENTINEL_USERNAME !== undefined && settings.REDIS_SENTINEL_PASSWORD === undefined,
      'is required with REDIS_SENTINEL_USERNAME',
    ],
  ];
  return faults.filter(([, isFault]) => isFault).map(([setting, , error]) => [setting, error]);
}

const isOfMany = (mode: RedisSettings['REDIS_MODE']): boolean => mode === 'cluster' || mode === 'sentinel';

const allButHost = ({ protocol, username, password, pathname }: URL): string =>
  [protocol, username, password, pathname].join(' ');

const hasDatabase = ({ pathname }: URL): boolean => Number(pathname.slice(1)) !== 0;
