import { writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { freePort } from './port.ts';
import { startProcess } from './process.ts';
import { connectionTo, ownRedis } from './redis-database.ts';
import { temporaryFolder } from './stack.ts';

export const MASTER_NAME = 'limits';
const SENTINELS = 3;
const QUORUM = 2;
const DOWN_AFTER_MS = 300;
const RETRYING = { retryStrategy: () => 50 };

export type SentinelNode = Awaited<ReturnType<typeof startNode>>;

/** A primary, two replicas, and three sentinels that watch them. */
export type Watched = Awaited<ReturnType<typeof startSentinels>>;

/**
 * @param password for the sentinels
 * @param isHasty whether they check the nodes often. By default, a sentinel checks only every few seconds, and makes an
 *   old primary a replica only ten seconds after another was promoted
 */
export async function startSentinels({ password = '', isHasty = true } = {}) {
  const first = await startNode({});
  const nodes = [first, await startNode(replicaOf(first)), await startNode(replicaOf(first))];
  await Promise.all(nodes.slice(1).map(follows));
  const sentinels = await Promise.all(
    Array.from({ length: SENTINELS }, () => startSentinel(first.port, password, isHasty)),
  );
  await Promise.all(sentinels.map(({ redis }) => knowsAll(redis)));

  /** The primary, as the sentinels see it. */
  async function primary(): Promise<SentinelNode> {
    const { redis } = sentinels[0] as { redis: Redis };
    const [, port] = (await redis.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', MASTER_NAME)) as string[];
    return nodes.find((node) => node.port === Number(port)) as SentinelNode;
  }

  return {
    /** The value for REDIS_URL. */
    urls: sentinels.map(({ url }) => url).join(','),
    nodes,
    sentinels,
    primary,
    /** Restarts a node as a replica of the current primary, and waits until it replicates. */
    async rejoin(node: SentinelNode): Promise<void> {
      await node.server.restart(replicaOf(await primary()));
      await follows(node);
    },
    /** Makes another node the primary and informs the sentinels; no connection is closed. */
    async swap(): Promise<void> {
      const [was, next, other] = nodes as [SentinelNode, SentinelNode, SentinelNode];
      for (const { redis } of sentinels) await redis.call('SENTINEL', 'REMOVE', MASTER_NAME);
      await hasCaughtUp(was, next);
      await next.redis.replicaof('NO', 'ONE');
      for (const { redis } of [was, other]) await redis.replicaof('127.0.0.1', next.port);
      for (const { redis } of sentinels)
        await redis.call('SENTINEL', 'MONITOR', MASTER_NAME, '127.0.0.1', next.port, QUORUM);
    },
  };
}

const replicaOf = ({ port }: { port: number }) => ({ replicaof: `127.0.0.1 ${port}` });

/** Waits until a replica has all writes of its primary so far, because a failover would lose missing ones. */
async function hasCaughtUp(primary: SentinelNode, replica: SentinelNode): Promise<void> {
  const offset = async ({ redis }: SentinelNode, name: string) =>
    Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(await redis.info('replication'))?.[1]);
  const written = await offset(primary, 'master_repl_offset');
  while ((await offset(replica, 'slave_repl_offset')) < written) await sleep(10);
}

async function startNode(directives: Record<string, string>) {
  const server = await ownRedis({
    ...directives,
    'repl-diskless-sync-delay': '0',
    'repl-ping-replica-period': '1',
    dir: await temporaryFolder(),
  });
  return { server, redis: connectionTo(server.url, RETRYING), port: Number(new URL(server.url).port) };
}

async function follows({ redis }: SentinelNode): Promise<void> {
  while (!(await redis.info('replication')).includes('master_link_status:up')) await sleep(25);
}

async function startSentinel(primaryPort: number, password: string, isHasty: boolean) {
  const port = await freePort();
  const directory = await temporaryFolder();
  const configuration = `${directory}/sentinel.conf`;
  await writeFile(
    configuration,
    [
      `port ${port}`,
      'bind 127.0.0.1',
      `dir ${directory}`,
      `sentinel monitor ${MASTER_NAME} 127.0.0.1 ${primaryPort} ${QUORUM}`,
      `sentinel down-after-milliseconds ${MASTER_NAME} ${DOWN_AFTER_MS}`,
      `sentinel failover-timeout ${MASTER_NAME} 1000`,
      ...(password === '' ? [] : [`requirepass ${password}`, `sentinel sentinel-pass ${password}`]),
    ].join('\n'),
  );
  const started = startProcess('redis-server', [configuration, '--sentinel'], {}, { stdio: 'ignore' });
  const url = `redis://127.0.0.1:${port}`;
  const redis = connectionTo(url, { password, ...RETRYING });
  if (!isHasty) return { ...started, url, redis, configuration };
  const periods = ['info-period', 200, 'publish-period', 200, 'ask-period', 200, 'min-link-reconnect-period', 200];
  await redis.call('SENTINEL', 'DEBUG', ...periods);
  return { ...started, url, redis, configuration };
}

/** Waits until a sentinel knows the replicas and the other sentinels. */
async function knowsAll(redis: Redis): Promise<void> {
  const count = async (what: string) => ((await redis.call('SENTINEL', what, MASTER_NAME)) as unknown[]).length;
  while ((await count('REPLICAS')) < 2 || (await count('SENTINELS')) < SENTINELS - 1) await sleep(50);
}
