import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { cleanUp } from './clean-up.ts';
import { freePort } from './port.ts';
import { startRedisServer } from './redis.ts';
import { connectionTo } from './redis-database.ts';
import { temporaryFolder } from './stack.ts';

const NODES = 3;
const SLOTS = 16_384;

export type ClusterNode = Awaited<ReturnType<typeof startNode>>;

/** A Redis Cluster of three primaries with a third of the slots each. */
export type RedisCluster = Awaited<ReturnType<typeof startRedisCluster>>;

/** @param tls directives that enable TLS for clients and between nodes */
export async function startRedisCluster(tls?: Record<string, string>) {
  const nodes = await Promise.all(Array.from({ length: NODES }, () => startNode(tls)));
  const share = SLOTS / NODES;
  for (const [index, { redis }] of nodes.entries()) {
    await redis.cluster('SET-CONFIG-EPOCH', index + 1);
    await redis.cluster('ADDSLOTSRANGE', Math.ceil(index * share), Math.ceil((index + 1) * share) - 1);
  }
  await agree(nodes);

  /** The node that serves a slot, according to the first node. */
  async function ownerOf(slot: number): Promise<ClusterNode> {
    const ranges = (await (nodes[0] as ClusterNode).redis.cluster('SLOTS')) as [
      number,
      number,
      [string, number, string, unknown[]],
    ][];
    const port = ranges.find(([first, last]) => first <= slot && slot <= last)?.[2][1];
    return nodes.find((node) => node.port === port) as ClusterNode;
  }

  return {
    nodes: nodes as readonly ClusterNode[],
    /** The value for REDIS_URL. */
    urls: nodes.map(({ url }) => url).join(','),
    ownerOf,
    /** Reads the fields of a hash from the node that has it. */
    async read(key: string): Promise<Record<string, string>> {
      const slot = await (nodes[0] as ClusterNode).redis.cluster('KEYSLOT', key);
      return await (await ownerOf(slot)).redis.hgetall(key);
    },
    /** Adds a node: a replica, or a primary without slots. */
    async join(as?: { replicaOf: ClusterNode }): Promise<ClusterNode> {
      const node = await startNode(tls);
      await agree([...nodes, node]);
      if (as === undefined) nodes.push(node);
      else await replicate(node, as.replicaOf);
      return node;
    },
  };
}

async function startNode(tls: Record<string, string> | undefined) {
  const tlsPort = tls && String(await freePort());
  const server = await startRedisServer({
    ...(tlsPort && { ...tls, 'tls-port': tlsPort, 'tls-cluster': 'yes' }),
    'cluster-enabled': 'yes',
    'cluster-port': String(await freePort()),
    'cluster-node-timeout': '1000',
    'cluster-require-full-coverage': 'no',
    'repl-diskless-sync-delay': '0',
    appendonly: 'yes',
    dir: await temporaryFolder(),
  });
  cleanUp(server.stop);
  // This client is connected only to this node. Commands on keys of other nodes get a redirection.
  const redis = connectionTo(server.url, { retryStrategy: () => 50 });
  const url = tlsPort === undefined ? server.url : `rediss://127.0.0.1:${tlsPort}`;
  return { server, url, redis, id: (await redis.cluster('MYID')) as string, port: Number(new URL(server.url).port) };
}

async function meet(redis: Redis, { url, redis: known }: ClusterNode): Promise<void> {
  const [, busPort = '0'] =
    /cluster-port\n(\d+)/.exec(((await known.config('GET', 'cluster-port')) as string[]).join('\n')) ?? [];
  await redis.cluster('MEET', '127.0.0.1', Number(new URL(url).port), Number(busPort));
}

async function replicate({ redis }: ClusterNode, primary: ClusterNode): Promise<void> {
  await redis.cluster('REPLICATE', primary.id);
  while (!(await redis.info('replication')).includes('master_link_status:up')) await sleep(25);
}

/** After this many attempts, nodes are introduced again, because a busy machine may make them abandon a handshake. */
const MEET_EVERY = 80;

/** Introduces every node to the first one, and waits until each knows all others and their slots. */
async function agree(nodes: readonly ClusterNode[]): Promise<void> {
  const isIn = async ({ redis }: ClusterNode) => {
    const info = String(await redis.cluster('INFO'));
    const signs = ['cluster_state:ok', `cluster_slots_assigned:${SLOTS}\r`, `cluster_known_nodes:${nodes.length}\r`];
    return signs.every((sign) => info.includes(sign));
  };
  const [first, ...others] = nodes as [ClusterNode, ...ClusterNode[]];
  for (let attempt = 0; attempt < 1_600; attempt++) {
    if (attempt % MEET_EVERY === 0) await Promise.all(others.map(({ redis }) => meet(redis, first)));
    if ((await Promise.all(nodes.map(isIn))).every(Boolean)) return;
    await sleep(25);
  }
  throw new Error('The nodes did not form a cluster.');
}

/**
 * Moves a slot with its keys to another node, like `redis-cli --cluster reshard`, but migrates the keys slowly.
 */
export async function moveSlot(
  cluster: RedisCluster,
  slot: number,
  to: ClusterNode,
  { pauseMs }: { pauseMs: number },
): Promise<void> {
  const from = await cluster.ownerOf(slot);
  await to.redis.cluster('SETSLOT', slot, 'IMPORTING', from.id);
  await from.redis.cluster('SETSLOT', slot, 'MIGRATING', to.id);
  await sleep(pauseMs);
  for (const key of (await from.redis.cluster('GETKEYSINSLOT', slot, 100)) as string[]) {
    await from.redis.migrate('127.0.0.1', to.port, key, 0, 2_000);
    await sleep(pauseMs);
  }
  for (const { redis } of [to, from, ...cluster.nodes]) await redis.cluster('SETSLOT', slot, 'NODE', to.id);
}
