import { type ClusterConnection, isCluster } from './cluster.ts';
import type { RedisConnection } from './script.ts';

/** What a node of Redis tells about itself. For the fields see https://redis.io/docs/latest/commands/info/. */

export type Node = Exclude<RedisConnection, ClusterConnection>;

/** Every primary with its name: `redis`, or in a cluster `redis host:port`. */
export function nodesOf(redis: RedisConnection): [name: string, node: Node][] {
  if (!isCluster(redis)) return [['redis', redis]];
  return redis.nodes('master').map((node) => [`redis ${node.options.host}:${node.options.port}`, node]);
}

export type Fields = Readonly<Record<string, string>>;

/** The fields of an answer to INFO. */
export const fieldsOf = (info: string): Fields =>
  Object.fromEntries([...info.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name, value]));
