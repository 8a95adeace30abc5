import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { freePort } from '../../support/port.ts';
import { folder, runProgram, spawnForRun } from '../machine/processes.ts';
import { programPath } from '../machine/programs.ts';
import { usageOf } from '../machine/usage.ts';

/** A Redis Cluster on this machine, a primary a shard, which keeps nothing on disk. */

export interface Shard {
  readonly url: string;
  readonly client: Redis;
  readonly pid: number;
  readonly cpuMicroseconds: () => number;
  /** At once, and for good. */
  readonly kill: () => void;
}

export async function startCluster(shards: number): Promise<Shard[]> {
  const nodes = await Promise.all(Array.from({ length: shards }, (_, at) => startShard(at)));
  const hosts = nodes.map(({ url }) => new URL(url).host);
  await runProgram(programPath('redis-cli'), ['--cluster', 'create', ...hosts, '--cluster-yes'], {});
  while (!(await Promise.all(nodes.map(isInOrder))).every(Boolean)) await sleep(50);
  return nodes;
}

async function startShard(at: number): Promise<Shard> {
  const [port, busPort] = [await freePort(), await freePort()];
  const settings = {
    port,
    'cluster-port': busPort,
    bind: '127.0.0.1',
    'cluster-enabled': 'yes',
    'cluster-config-file': join(folder, `shard-${at}.conf`),
    'cluster-require-full-coverage': 'no',
    'cluster-node-timeout': 1_000,
    save: '',
  };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const child = spawnForRun(`shard-${at}`, [programPath('redis-server'), ...args], {}, ['ignore', 'ignore', 'ignore']);
  const client = new Redis(port, '127.0.0.1', { retryStrategy: () => 50 });
  client.on('error', () => {});
  await client.ping();
  const pid = child.pid as number;
  return {
    url: `redis://127.0.0.1:${port}`,
    client,
    pid,
    cpuMicroseconds: () => usageOf(pid).cpuMicroseconds,
    kill: () => void child.kill('SIGKILL'),
  };
}

const isInOrder = async ({ client }: Shard): Promise<boolean> =>
  String(await client.cluster('INFO')).includes('cluster_state:ok');
