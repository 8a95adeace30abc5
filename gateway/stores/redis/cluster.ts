import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import slotOf from 'cluster-key-slot';
import { Cluster, type Redis } from 'ioredis';
import type { Logger } from '../../../shared/process/logger.ts';
import type { Credential } from '../../limiter/credential.ts';
import type { RedisConnection } from './calls.ts';
import { failFast, logOutages, prepare, retryDelayMs } from './connection.ts';
import { addresses, commonOptions, type RedisTarget } from './target.ts';
import { logRefusedTls, TlsConnector } from './tls.ts';

/** Connects to a Redis Cluster. */

const DEFAULT_PORT = 6379;

/**
 * Connects to a cluster, or keeps trying in the background. A decision that a node redirects (MOVED, ASK) follows: it
 * was not taken there. If the node closes the connection or answers CLUSTERDOWN, it fails: the library would send it
 * again.
 */
export async function connectCluster(target: RedisTarget, logger: Logger): Promise<Cluster> {
  const { db: _db, ...common } = commonOptions(target);
  const nodes = addresses(target, DEFAULT_PORT);
  const cluster = new Cluster(nodes, {
    lazyConnect: true,
    enableOfflineQueue: false,
    // The check would ask a node that is not connected yet, and then start over. A cluster that is not ready says
    // CLUSTERDOWN.
    enableReadyCheck: false,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    clusterRetryStrategy: retryDelayMs,
    // Names are not resolved here: certificates are checked against them.
    dnsLookup: (name, done) => done(null, name),
    redisOptions: { ...failFast(target.timeoutMs), ...common, ...(common.tls && { Connector: TlsConnector }) },
  });
  logOutages(cluster, logger, () => logRefusedTls(nodes, common.tls, logger));
  logNodeOutages(cluster, logger);
  cluster.on('+node', prepare);
  // A node is created for every new connection, and is not connected yet.
  cluster.on('+node', ({ options }: Redis) => Object.assign(options, target.credentials()));
  cluster.on('+node', connectSoon);
  await Promise.race([connectAll(cluster), sleep(target.startMs, undefined, { ref: false })]);
  return cluster;
}

/** The library connects to a node at its first command, and refuses other commands until then. */
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
 * The library reports every failed attempt to connect to a node, and drops the node until others name it again. Its own
 * queries to nodes, which it repeats elsewhere, are not reported here.
 */
function logNodeOutages(cluster: Cluster, logger: Logger): void {
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

/** The node that decides on a key, as far as known. */
export const nodeOf =
  (cluster: Cluster) =>
  ({ id }: Credential): string =>
    cluster.slots[slotOf(id)]?.[0] ?? 'unknown';
