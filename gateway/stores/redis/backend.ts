import type { Logger } from '../../../shared/process/logger.ts';
import { repeat } from '../../../shared/process/repeat.ts';
import { Clients } from '../../limiter/clients.ts';
import type { LocalDecisions } from '../../limiter/limiter.ts';
import { Debts, surviveOutages } from '../../limiter/outage.ts';
import type { PlansInForce } from '../../limiter/plans.ts';
import type { Backend } from '../backend.ts';
import type { LogEntry } from '../storage.ts';
import { CallCounts, loadScript, type RedisConnection } from './calls.ts';
import { isCluster, nodeOf } from './connection.ts';
import { ClusterLimiter, RedisLimiter } from './limiter.ts';
import { checkRedis, memoryUsed } from './nodes.ts';
import { peersOn } from './peers.ts';
import { RedisStorage } from './storage.ts';

const MOVE_EVERY_MS = 250;

interface RedisBackendOptions {
  readonly clients?: Clients | undefined;
  /** Decides while Redis is unavailable. By default, `clients` does. */
  readonly locals?: LocalDecisions | undefined;
  readonly connectOperators?: () => Promise<RedisConnection>;
  readonly auditLength?: number | undefined;
}

/** Keys, plans and decisions in Redis, shared by any number of gateways. */
export function redisBackend(
  redis: RedisConnection,
  plans: PlansInForce,
  logger: Logger,
  {
    clients = new Clients(() => plans.table),
    locals = clients,
    connectOperators = async () => redis,
    auditLength,
  }: RedisBackendOptions = {},
): Backend {
  const calls = new CallCounts();
  const connectedSince = watchConnection(redis);
  const ofConnection = isCluster(redis) ? redis.options.redisOptions : redis.options;
  const timeoutMs = ofConnection?.commandTimeout;
  const shared = isCluster(redis)
    ? new ClusterLimiter(redis, plans, { calls, timeoutMs })
    : new RedisLimiter(redis, plans, { calls, timeoutMs });
  const debts = new Debts(clients, shared);
  const limiter = surviveOutages(shared, locals, {
    logger,
    nodeOf: isCluster(redis) ? ({ id }) => nodeOf(redis, id) : undefined,
    onUnknown: debts.noteUnknown,
    onLate: (...late) => clients.noteLate(...late),
  });
  const onLost = ({ log, fields }: LogEntry, reason: string) => {
    if (log === 'audit') logger.error({ activity: fields, reason }, 'a change is in force, but the audit log lacks it');
  };
  let operators: RedisConnection | undefined;
  const stopped = new AbortController();
  return {
    limiter,
    storage: new RedisStorage(redis, { auditLength, onLost, isConfirmed: false }),
    async operatorsStorage() {
      operators = await connectOperators();
      const storage = new RedisStorage(operators, { auditLength, onLost });
      if (isCluster(redis)) void repeat(MOVE_EVERY_MS, stopped.signal, () => storage.moveOutboxes());
      return storage;
    },
    loadScript: () => loadScript(redis),
    nodesAway: () => limiter.nodesAway(),
    redis: () => ({
      isConnected: redis.status === 'ready',
      since: connectedSince(),
      lastCall: calls.last,
      outage: limiter.outage(),
    }),
    peers: (answer) => peersOn(operators ?? redis, answer),
    counted: () => [...calls.families(), ...debts.counted()],
    memoryUsed: () => memoryUsed(redis),
    check: () => checkRedis(redis),
    async close() {
      limiter.stop();
      await debts.stop();
      stopped.abort();
      redis.disconnect();
      operators?.disconnect();
    },
  };
}

/** When the connection was last made or lost: Unix time in ms. */
function watchConnection(redis: RedisConnection): () => number {
  let [wasReady, since] = [redis.status === 'ready', Date.now()];
  const look = () => {
    if (wasReady !== (redis.status === 'ready')) [wasReady, since] = [!wasReady, Date.now()];
  };
  // The library changes the status before it emits the event. A failed attempt to reconnect is not another loss.
  for (const event of ['ready', 'close']) redis.on(event, look);
  return () => since;
}
