import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster, type Redis } from 'ioredis';
import type { Logger } from '../../../shared/logger.ts';
import type { Credential } from '../credential.ts';
import { failFast, prepare, type RedisConnection, retryDelayMs, tellOnce } from './connection.ts';
import { slotOf } from './slot.ts';
import { addresses, commonOptions, type RedisTarget } from './target.ts';
import { TlsConnector, tellWhyRefused } from './tls.ts';

/** How to connect to a Redis Cluster. */

const DEFAULT_PORT = 6379;

/**
 * Connects to a cluster, or goes on trying in the background. A decision that a node redirects (MOVED, ASK) follows, since it
 * was not taken there; one whose node hangs up, or that says CLUSTERDOWN, fails: the library would send it again.
 */
export async function connectCluster(target: RedisTarget, logger: Logger): Promise<Cluster> {
  const { db: _db, ...common } = commonOptions(target);
  const nodes = addresses(target, DEFAULT_PORT);
  const cluster = new Cluster(nodes, {
    lazyConnect: true,
    enableOfflineQueue: false,
    // It would ask a node that is not connected yet, and then begin anew; what cannot serve says CLUSTERDOWN by itself.
    enableReadyCheck: false,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    clusterRetryStrategy: retryDelayMs,
    // Names stay names: certificates are checked against them.
    dnsLookup: (name, done) => done(null, name),
    redisOptions: { ...failFast(target.timeoutMs), ...common, ...(common.tls && { Connector: TlsConnector }) },
  });
  tellOnce(cluster, logger, () => tellWhyRefused(nodes, common.tls, logger));
  tellOfNodes(cluster, logger);
  cluster.on('+node', prepare);
  cluster.on('+node', connectSoon);
  await Promise.race([connectAll(cluster), sleep(target.startMs, undefined, { ref: false })]);
  return cluster;
}

/** The library connects to a node when it is first asked, and until then refuses whoever else asks. */
function connectSoon(node: Redis): void {
  setImmediate(() => {
    if (node.status === 'wait' && !node.options.readOnly) node.connect().catch(() => undefined);
  });
}

async function connectAll(cluster: Cluster): Promise<void> {
  await cluster.connect().catch(() => undefined);
  await Promise.all(cluster.nodes('master').map((node) => node.status === 'ready' || settled(node)));
}

const settled = (node: Redis): Promise<unknown> => once(node, 'ready').catch(() => undefined);

/**
 * The library reports every failed attempt at a node, and gives it up until the others name it again. Its own questions to
 * nodes, which it repeats elsewhere, are not heard here.
 */
function tellOfNodes(cluster: Cluster, logger: Logger): void {
  const away = new Set<string>();
  cluster.on('+node', (redis: Redis) => {
    const node = `${redis.options.host}:${redis.options.port}`;
    redis.on('error', ({ message }: Error) => {
      if (!away.has(node)) logger.error({ node, reason: message }, 'redis node is away');
      away.add(node);
    });
    redis.on('ready', () => {
      if (away.delete(node)) logger.info({ node }, 'redis node is back');
    });
  });
}

export type ClusterConnection = Cluster;

export const isCluster = (redis: RedisConnection): redis is ClusterConnection => redis instanceof Cluster;

/** Which node decides on a key, as far as is known. */
export const nodeOf =
  (cluster: Cluster) =>
  ({ id }: Credential): string =>
    cluster.slots[slotOf(id)]?.[0] ?? 'unknown';
