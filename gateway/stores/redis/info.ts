import type { Fields } from '../storage.ts';
import type { RedisConnection } from './calls.ts';
import { type ClusterConnection, isCluster } from './cluster.ts';

/** What a node of Redis reports about itself; see https://redis.io/docs/latest/commands/info/ for the fields. */

export type Node = Exclude<RedisConnection, ClusterConnection>;

/** Every primary with its name: `redis`, or in a cluster `redis host:port`. */
export function nodesOf(redis: RedisConnection): [name: string, node: Node][] {
  if (!isCluster(redis)) return [['redis', redis]];
  return redis.nodes('master').map((node) => [`redis ${node.options.host}:${node.options.port}`, node]);
}

export const fieldsOf = (info: string): Fields =>
  Object.fromEntries([...info.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name, value]));

/**
 * How many replicas follow a node. A replica that is still being filled confirms nothing.
 * @param replication that section of INFO
 */
export const followersIn = (replication: Fields): number =>
  Object.entries(replication).filter(([field, state]) => /^slave\d+$/.test(field) && state?.includes('state=online'))
    .length;

/**
 * The share of `maxmemory` or, if that is not set, of the machine's memory that each primary uses, 0 to 1. Leaves out a
 * node that does not answer.
 */
export async function memoryUsed(redis: RedisConnection): Promise<[node: string, share: number][]> {
  const asked = nodesOf(redis).map(async ([name, node]): Promise<[string, number][]> => {
    if (node.status !== 'ready') return [];
    const { used_memory: used, maxmemory, total_system_memory: machine } = fieldsOf(await node.info('memory'));
    const share = Number(used) / (Number(maxmemory) || Number(machine));
    return Number.isFinite(share) ? [[name, share]] : [];
  });
  return (await Promise.all(asked.map((one) => one.catch(() => [])))).flat();
}
