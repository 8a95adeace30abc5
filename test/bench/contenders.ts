import { join } from 'node:path';
import { type Service, startNode } from './machine/processes.ts';
import { startBareNginx, startNginxLua } from './peers/nginx.ts';
import { startGateway } from './setup/gateway.ts';
import { issueEmbeddedKeys, issueKeys, type Keys } from './setup/keys.ts';
import type { Stage } from './setup/stage.ts';

/** A proxy to compare. It runs in its own processes, with one worker, or with two if its name ends with -2. */
export interface Contender {
  readonly name: ContenderName;
  readonly url: string;
  /** The process whose CPU time counts as the proxy's; undefined if the core is called directly. */
  readonly pid: number | undefined;
  /** The file with its access log. */
  readonly log: string;
  readonly keys: Keys;
  /** The maximum number of Redis calls per decision; undefined if it makes none. */
  readonly redisCalls: number | undefined;
}

export type ContenderName = keyof typeof DESCRIPTIONS;

/** Every contender, in the order of the tables. */
export const DESCRIPTIONS = {
  gateway: 'this gateway as shipped, access log on',
  'gateway-base': 'the gateway of --base, access log on',
  'gateway-quiet': 'this gateway, access log off',
  'gateway-embedded': 'this gateway without Redis, access log on',
  'gateway-2': 'this gateway with WORKERS=2, access log on',
  'nginx-lua': 'nginx + ngx_lua + Redis, one EVALSHA per request, access log on',
  'nginx-lua-2': 'the same with two worker processes',
  fastify: 'fastify + @fastify/rate-limit + @fastify/http-proxy, fixed windows, no log',
  express: 'express + express-rate-limit + http-proxy-middleware, fixed windows, no log',
  'http-proxy-3': "this gateway's decision, http-proxy-3 as forwarder, no log",
  floor: 'the floor: a gateway on one page without defences, access log on',
  nginx: 'nginx proxy_pass alone: no key, no limit, no log',
  core: 'the core called directly: no proxy at all',
} as const;

/** The contender to which all others are compared, unless --base names another checkout. */
export const BASELINE: ContenderName = 'nginx-lua';

const PEERS = join(import.meta.dirname, 'peers');
const ADMIN_TOKEN = 'token-of-the-benchmark';

type Launched = Omit<Contender, 'name' | 'keys'> & { readonly adminUrl?: string | undefined };
type Launch = (stage: Stage, base: string) => Promise<Launched>;

const LAUNCHES: Record<ContenderName, Launch> = {
  gateway: (stage) => launchGateway('gateway', stage, { REDIS_URL: stage.redisUrl }),
  'gateway-base': (stage, base) => launchGateway('gateway-base', stage, { REDIS_URL: stage.redisUrl }, base),
  'gateway-quiet': (stage) => launchGateway('gateway-quiet', stage, { REDIS_URL: stage.redisUrl, LOG_LEVEL: 'warn' }),
  'gateway-embedded': (stage) => launchGateway('gateway-embedded', stage, {}),
  'gateway-2': (stage) => launchGateway('gateway-2', stage, { REDIS_URL: stage.redisUrl, WORKERS: '2' }),
  'nginx-lua': (stage) => launchNginxLua('nginx-lua', stage, 1),
  'nginx-lua-2': (stage) => launchNginxLua('nginx-lua-2', stage, 2),
  fastify: (stage) => launchPeer('fastify', stage, 2),
  express: (stage) => launchPeer('express', stage, 2),
  'http-proxy-3': (stage) => launchPeer('http-proxy-3', stage, 1),
  floor: (stage) => launchPeer('floor', stage, 1, import.meta.dirname),
  nginx: async ({ coreUrl }) => launched(await startBareNginx(coreUrl), undefined),
  core: async ({ core }) => ({ ...launched(core, undefined), pid: undefined }),
};

/** @param base the folder of the checkout that `gateway-base` runs */
export async function startContender(name: ContenderName, stage: Stage, base: string): Promise<Contender> {
  const { adminUrl, ...contender } = await LAUNCHES[name](stage, base);
  const keys = await issueKeys(stage.client);
  if (contender.redisCalls !== 0) return { name, ...contender, keys };
  return { name, ...contender, keys: { ...keys, ...(await issueEmbeddedKeys(adminUrl ?? '', ADMIN_TOKEN)) } };
}

async function launchGateway(name: ContenderName, stage: Stage, env: NodeJS.ProcessEnv, folder = '.') {
  const service = await startGateway(name, stage, { ADMIN_TOKEN, ...env }, folder);
  const { gateway: url = '', admin: adminUrl } = service.urls;
  return { ...launched(service, env.REDIS_URL === undefined ? 0 : 1), url, adminUrl };
}

async function launchNginxLua(name: ContenderName, { coreUrl, redisUrl }: Stage, workers: number) {
  return launched(await startNginxLua(name, coreUrl, redisUrl, workers), 1);
}

async function launchPeer(name: ContenderName, { coreUrl, redisUrl }: Stage, calls: number, folder = PEERS) {
  const script = join(folder, `${name}.ts`);
  return launched(await startNode(name, script, { CORE_URL: coreUrl, REDIS_URL: redisUrl }), calls);
}

function launched({ name, urls, pid, log }: Service, redisCalls: number | undefined) {
  return { url: urls[name] ?? '', pid, log, redisCalls };
}
