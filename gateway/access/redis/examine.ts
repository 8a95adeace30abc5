import { type Finding, fault, good, warning } from '../../finding.ts';
import { type ClusterConnection, isCluster } from './cluster.ts';
import type { RedisConnection } from './connection.ts';
import { SLOTS } from './slot.ts';

/** Whether a Redis is what a gateway needs: https://redis.io/docs/latest/commands/info/ names the fields. */

const OLDEST_VERSION = 7;
const FULL = 0.9;
/** Between the gateway's clock and that of Redis, in milliseconds. */
const CLOCK_TOLERANCE_MS = 1_000;

export async function examineRedis(redis: RedisConnection): Promise<Finding[]> {
  if (!isCluster(redis)) return await examineNode(redis, 'redis');
  const nodes = redis.nodes('master');
  const found = await Promise.all(
    nodes.map((node) => examineNode(node, `redis ${node.options.host}:${node.options.port}`)),
  );
  return [examineSlots(redis.slots), ...found.flat()];
}

function examineSlots(slots: readonly (readonly string[] | undefined)[]): Finding {
  const served = slots.filter((nodes) => nodes !== undefined && nodes.length > 0).length;
  if (served === SLOTS) return good('redis cluster', 'all slots are served');
  return fault(
    'redis cluster',
    `${SLOTS - served} of ${SLOTS} slots are served by nobody`,
    'redis-cli --cluster check and fix',
  );
}

type Node = Exclude<RedisConnection, ClusterConnection>;

async function examineNode(redis: Node, about: string): Promise<Finding[]> {
  const askedAt = performance.now();
  try {
    const [info, client, time, now] = [await redis.info(), await redis.client('INFO'), await redis.time(), Date.now()];
    const ms = (performance.now() - askedAt) / 3;
    const fields = fieldsOf(info);
    return [
      examineServer(about, fields, ms),
      examineMemory(about, fields),
      examinePersistence(about, fields),
      examineUser(about, /\buser=(\S+)/.exec(String(client))?.[1] ?? 'default', fields),
      examineClock(about, Number(time[0]) * 1_000 + Number(time[1]) / 1_000 - now),
    ];
  } catch (thrown) {
    const advice = 'Is it there, do REDIS_URL and its password name it, and may its user do what users.acl allows?';
    return [fault(about, `gives no answer: ${(thrown as Error).message}`, advice)];
  }
}

type Fields = Readonly<Record<string, string>>;

const fieldsOf = (info: string): Fields =>
  Object.fromEntries([...info.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name, value]));

function examineServer(about: string, { redis_version: version = '', role }: Fields, ms: number): Finding {
  const found = `Redis ${version}, ${role === 'master' ? 'a primary' : 'a replica'}, answers in ${ms.toFixed(1)} ms`;
  if (Number.parseInt(version, 10) < OLDEST_VERSION) return fault(about, found, 'Redis 7 or later is needed.');
  if (role !== 'master') return fault(about, found, 'Decisions need a primary: REDIS_URL must name it, or sentinels.');
  return good(about, found);
}

/** Whoever evicts a key forgets an API key for good, or hands out a fresh allowance. */
function examineMemory(
  about: string,
  { maxmemory = '0', maxmemory_policy: policy = '', used_memory: used }: Fields,
): Finding {
  const name = `${about} memory`;
  if (policy !== 'noeviction' && maxmemory !== '0')
    return fault(
      name,
      `maxmemory-policy is ${policy}: API keys may be evicted`,
      'CONFIG SET maxmemory-policy noeviction',
    );
  if (policy !== 'noeviction')
    return warning(
      name,
      `maxmemory-policy is ${policy}, with no maxmemory yet`,
      'CONFIG SET maxmemory-policy noeviction',
    );
  const share = Number(used) / Number(maxmemory);
  if (share > FULL && share < Number.POSITIVE_INFINITY)
    return warning(
      name,
      `${Math.round(100 * share)} % of maxmemory is used; past it all decisions are local`,
      'Raise maxmemory.',
    );
  return good(name, 'nothing is evicted');
}

function examinePersistence(about: string, { aof_enabled: aof, aof_last_write_status: status }: Fields): Finding {
  const name = `${about} persistence`;
  if (aof !== '1')
    return warning(
      name,
      'no append-only file: a crash loses keys issued, and usage, since the last snapshot',
      'CONFIG SET appendonly yes',
    );
  if (status !== 'ok')
    return fault(name, 'the last write to the append-only file failed', 'Is the disk full? See its log.');
  return good(name, 'an append-only file is written');
}

function examineUser(about: string, user: string, { acl_access_denied_cmd: denied = '0' }: Fields): Finding {
  const name = `${about} user`;
  if (user === 'default')
    return warning(
      name,
      'the default user, who may do everything',
      'deploy/redis/users.acl has one who may do what a gateway does.',
    );
  if (denied !== '0')
    return warning(name, `${user}; ${denied} commands were refused to somebody`, 'ACL LOG tells which.');
  return good(name, user);
}

/** Decisions go by the clock of Redis, log lines and Reset headers of people's expectation by everyone's. */
function examineClock(about: string, aheadMs: number): Finding {
  const name = `${about} clock`;
  const found = `${Math.abs(Math.round(aheadMs))} ms ${aheadMs < 0 ? 'behind' : 'ahead of'} the gateway's`;
  if (Math.abs(aheadMs) <= CLOCK_TOLERANCE_MS) return good(name, found);
  return warning(name, found, 'Let both follow NTP: X-RateLimit-Reset is told by the clock of Redis.');
}
