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

const DEFAULT_PORT = 6379;

/**
 * Connects to a cluster, or keeps trying in the background. A decision follows a redirect (MOVED, ASK), because the
 * first node did not take it. It fails if the node closes the connection or answers CLUSTERDOWN, because the library
 * would send it again.
 */
export async function connectCluster(target: RedisTarget, logger: Logger): Promise<Cluster> {
  const { db: _db, ...common } = commonOptions(target);
  const nodes = addresses(target, DEFAULT_PORT);
  const cluster = new Cluster(nodes, {
    lazyConnect: true,
    enableOfflineQueue: false,
    // The check would ask a node that is not connected yet, and then start over. A cluster that is not ready answers
    // CLUSTERDOWN anyway.
    enableReadyCheck: false,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    clusterRetryStrategy: retryDelayMs,
    // Names stay unresolved because certificates are checked against them.
    dnsLookup: (name, done) => done(null, name),
    redisOptions: { ...failFast(target.timeoutMs), ...common, ...(common.tls && { Connector: TlsConnector }) },
  });
  logOutages(cluster, logger, () => logRefusedTls(nodes, common.tls, logger));
  logNodeOutages(cluster, logger);
  cluster.on('+node', prepare);
  // The event is emitted for each new connection to a node, before the node is connected.
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
 * The library reports every failed attempt to connect to a node, and drops the node until other nodes name it again.
 * This function does not report the library's own queries, which the library repeats elsewhere.
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

/** The node that decides on a key, if known. */
export const nodeOf =
  (cluster: Cluster) =>
  ({ id }: Credential): string =>
    cluster.slots[slotOf(id)]?.[0] ?? 'unknown';
