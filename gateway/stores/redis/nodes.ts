import { type CheckResult, fault, good, silent, warning } from '../../check-result.ts';
import type { Fields } from '../storage.ts';
import { inWords, type RedisConnection, refusalIn } from './calls.ts';
import { type ClusterConnection, isCluster, lastFaultOf } from './connection.ts';

/**
 * What Redis nodes report about themselves, and whether they meet the gateway's needs. For the fields see
 * https://redis.io/docs/latest/commands/info/.
 */

export type Node = Exclude<RedisConnection, ClusterConnection>;

/** Every primary with its name: `redis`, or in a cluster `redis host:port`. */
export function nodesOf(redis: RedisConnection): [name: string, node: Node][] {
  if (!isCluster(redis)) return [['redis', redis]];
  return redis.nodes('master').map((node) => [`redis ${node.options.host}:${node.options.port}`, node]);
}

export const fieldsOf = (info: string): Fields =>
  Object.fromEntries([...info.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name, value]));

/**
 * How many replicas follow a node. A replica that is still loading the data confirms nothing.
 * @param replication the replication section of INFO
 */
export const followersIn = (replication: Fields): number =>
  Object.entries(replication).filter(([field, state]) => /^slave\d+$/.test(field) && state?.includes('state=online'))
    .length;

/** The share of `maxmemory`, or of the machine's memory, that each primary uses, 0 to 1. Skips silent nodes. */
export async function memoryUsed(redis: RedisConnection): Promise<[node: string, share: number][]> {
  const asked = nodesOf(redis).map(async ([name, node]): Promise<[string, number][]> => {
    if (node.status !== 'ready') return [];
    const { used_memory: used, maxmemory, total_system_memory: machine } = fieldsOf(await node.info('memory'));
    const share = Number(used) / (Number(maxmemory) || Number(machine));
    return Number.isFinite(share) ? [[name, share]] : [];
  });
  return (await Promise.all(asked.map((one) => one.catch(() => [])))).flat();
}

/** The number of slots in every cluster (Redis Cluster specification). */
const SLOTS = 16_384;
const OLDEST_VERSION = 7;
const FULL = 0.9;
/** Maximum difference between the gateway's clock and that of Redis, in milliseconds. */
const CLOCK_TOLERANCE_MS = 1_000;

/** ioredis' error for a command without a reply. */
const TIMED_OUT = 'Command timed out';

/** A replica reports every second. */
const SILENT_REPLICA_SECONDS = 3;

const UNREACHABLE =
  'Is it running, are REDIS_URL and its password correct, and does its user have the permissions of users.acl?';
const NOT_A_PRIMARY = 'Decisions need a primary: set REDIS_URL to a primary or to sentinels.';
const BUSY = 'Run redis-cli SCRIPT KILL, which ends the script. See GatewayDecisionsLocal in the runbook.';

export async function checkRedis(redis: RedisConnection): Promise<CheckResult[]> {
  if (!isCluster(redis)) return await checkNode(redis, 'redis');
  const lost = await lostNodes(redis);
  const checkEach = async () => await Promise.all(nodesOf(redis).map(([name, node]) => checkNode(node, name)));
  let found = (await checkEach()).flat();
  // After a manual failover, the library does not notice by itself that the nodes have swapped their roles.
  if (found.some(({ advice }) => advice === NOT_A_PRIMARY)) {
    await readNodesAgain(redis);
    found = (await checkEach()).flat().map((one) => (one.advice === NOT_A_PRIMARY ? inTransition(one) : one));
  }
  return [checkSlots(redis), ...lost.map((name) => fault(name, 'does not answer', UNREACHABLE)), ...found];
}

/** The other nodes do not know yet that this one has become a replica. Until then, it redirects decisions. */
const inTransition = ({ about, found }: CheckResult): CheckResult =>
  warning(about, found, 'If this lasts for more than a few seconds, run redis-cli --cluster check.');

/** Makes the library ask the cluster for its current nodes. */
const readNodesAgain = (redis: ClusterConnection) =>
  new Promise<unknown>((resolve) => redis.refreshSlotsCache(resolve));

/**
 * The primaries whose connections the library has closed for good. If there are any, the library first asks the cluster
 * for its current nodes, because it does not notice by itself that a replica has taken over.
 */
async function lostNodes(redis: ClusterConnection): Promise<string[]> {
  const lost = () => {
    const known = new Set(nodesOf(redis).map(([name]) => name));
    return [...new Set(redis.slots.flatMap(primaryIn))].filter((name) => !known.has(name));
  };
  if (lost().length > 0) await readNodesAgain(redis);
  return lost();
}

/** The name of the primary of a slot; none for a slot that no node serves. */
const primaryIn = (nodes: readonly string[] = []): string[] => nodes.slice(0, 1).map((address) => `redis ${address}`);

function checkSlots(redis: ClusterConnection): CheckResult {
  const about = 'redis cluster';
  const ready = new Set(nodesOf(redis).flatMap(([name, { status }]) => (status === 'ready' ? [name] : [])));
  const primaries = redis.slots.flatMap(primaryIn);
  const left = SLOTS - primaries.filter((name) => ready.has(name)).length;
  if (left === 0) return good(about, 'all slots are served');
  const found = `${left} of ${SLOTS} slots are not served`;
  if (primaries.length === SLOTS) return fault(about, found, 'Start the nodes that do not answer.');
  return fault(about, found, 'Run redis-cli --cluster check, then redis-cli --cluster fix.');
}

async function checkNode(redis: Node, about: string): Promise<CheckResult[]> {
  const askedAt = performance.now();
  try {
    const [info, client, time, now] = [await redis.info(), await redis.client('INFO'), await redis.time(), Date.now()];
    const ms = (performance.now() - askedAt) / 3;
    const fields = fieldsOf(info);
    return [
      checkServer(about, fields, ms),
      checkMemory(`${about} memory`, fields),
      checkPersistence(`${about} persistence`, fields),
      checkUser(`${about} user`, /\buser=(\S+)/.exec(String(client))?.[1] ?? 'default', fields),
      checkClock(`${about} clock`, Number(time[0]) * 1_000 + Number(time[1]) / 1_000 - now),
      checkReplicas(`${about} replicas`, fields),
    ];
  } catch (thrown) {
    const { message } = thrown as Error;
    const cause = lastFaultOf(redis);
    if ([message, cause?.message].includes(TIMED_OUT) || cause?.code === 'ETIMEDOUT') return [silent(about)];
    const why = cause?.message ?? refusalIn({ name: '', message }) ?? inWords(message);
    const isBusy = (cause?.message ?? message).startsWith('BUSY ');
    return [fault(about, `does not answer: ${why}`, isBusy ? BUSY : UNREACHABLE)];
  }
}

function checkServer(about: string, { redis_version: version = '', role }: Fields, ms: number): CheckResult {
  const found = `Redis ${version}, ${role === 'master' ? 'a primary' : 'a replica'}, answers in ${ms.toFixed(1)} ms`;
  if (Number.parseInt(version, 10) < OLDEST_VERSION) return fault(about, found, 'Redis 7 or later is needed.');
  if (role !== 'master') return fault(about, found, NOT_A_PRIMARY);
  return good(about, found);
}

/** If Redis evicts a record, an API key is lost for good or starts over with full buckets. */
function checkMemory(
  name: string,
  { maxmemory = '0', maxmemory_policy: policy = '', used_memory: bytes, mem_not_counted_for_evict: more = '0' }: Fields,
): CheckResult {
  if (policy !== 'noeviction') {
    const [found, advice] = [`maxmemory-policy is ${policy}`, 'CONFIG SET maxmemory-policy noeviction'];
    if (maxmemory === '0') return warning(name, `${found}, with no maxmemory yet`, advice);
    return fault(name, `${found}: API keys may be evicted`, advice);
  }
  const share = (Number(bytes) - Number(more)) / Number(maxmemory);
  if (!Number.isFinite(share) || share <= FULL) return good(name, 'nothing is evicted');
  const used = `${Math.round(100 * share)} % of maxmemory is used`;
  return share < 1
    ? warning(name, `${used}; when it is full, all decisions are local`, 'Raise maxmemory.')
    : fault(name, `${used}, so all decisions are local and no change can be made`, 'Raise maxmemory.');
}

function checkPersistence(name: string, { aof_enabled: aof, aof_last_write_status: status }: Fields): CheckResult {
  if (aof !== '1') {
    const found = 'no append-only file: a crash loses keys issued and usage counted since the last snapshot';
    return warning(name, found, 'CONFIG SET appendonly yes');
  }
  if (status === 'ok') return good(name, 'an append-only file is written');
  return fault(name, 'the last write to the append-only file failed', 'Is the disk full? See the Redis log.');
}

function checkReplicas(name: string, replication: Fields): CheckResult {
  const count = followersIn(replication);
  const lags = Object.values(replication).flatMap((value) => /,state=online,.*,lag=(\d+)/.exec(value)?.[1] ?? []);
  if (count > 0 && Math.min(...lags.map(Number)) > SILENT_REPLICA_SECONDS)
    return fault(name, 'none answers: changes by operators get 503', 'Restart the replicas, or remove them.');
  if (count > 0) return good(name, `${count} connected: each change by an operator waits for one of them`);
  const why = Number(replication.connected_slaves) > 0 ? 'is up to date yet' : 'is connected';
  const advice = 'Connect a replica (REPLICAOF), and let sentinels or the cluster watch it.';
  return warning(name, `none ${why}: acknowledged changes are lost with this node`, advice);
}

function checkUser(name: string, user: string, { acl_access_denied_cmd: denied = '0' }: Fields): CheckResult {
  if (user === 'default') {
    const advice = 'deploy/redis/users.acl has a user with only the permissions that a gateway needs.';
    return warning(name, 'the default user, which has every permission', advice);
  }
  if (denied === '0') return good(name, user);
  return warning(name, `${user}; ${denied} commands have been refused`, 'ACL LOG lists them.');
}

/** Decisions use the Redis clock, and people compare log lines and Reset headers with other clocks. */
function checkClock(name: string, aheadMs: number): CheckResult {
  const found = `${Math.abs(Math.round(aheadMs))} ms ${aheadMs < 0 ? 'behind' : 'ahead of'} the gateway's`;
  if (Math.abs(aheadMs) <= CLOCK_TOLERANCE_MS) return good(name, found);
  return warning(name, found, 'Synchronize both with NTP: X-RateLimit-Reset follows the Redis clock.');
}
