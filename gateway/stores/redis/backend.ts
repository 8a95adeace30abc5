import type { Logger } from '../../../shared/process/logger.ts';
import { rememberBans } from '../../limiter/ban-cache.ts';
import { KnownKeys, type LocalDecisions } from '../../limiter/known-keys.ts';
import { surviveOutages } from '../../limiter/outage.ts';
import type { PlanTable } from '../../limiter/plans.ts';
import type { Backend } from '../stores.ts';
import { RedisActivity } from './activity.ts';
import { RedisBackupNotes } from './backup-notes.ts';
import { CallCounts, loadScript, type RedisConnection } from './calls.ts';
import { checkRedis } from './check-redis.ts';
import { isCluster, nodeOf } from './cluster.ts';
import { ClusterLimiter } from './cluster-limiter.ts';
import { EditWatch } from './edit-watch.ts';
import { memoryUsed } from './info.ts';
import { RedisKeys } from './keys.ts';
import { RedisLimiter } from './limiter.ts';
import { RedisPlans } from './plans.ts';
import { RedisTokens } from './tokens.ts';
import { Trail } from './trail.ts';

/** For a connection without its own. */
const DEFAULT_TIMEOUT_MS = 50;

interface RedisBackendOptions {
  /** Decides in place of Redis, based on the keys that this process knows. */
  readonly localsOf?: ((known: KnownKeys) => LocalDecisions) | undefined;
  /** Creates the connection for operators, with longer timeouts. */
  readonly connectOperators?: () => Promise<RedisConnection>;
  /** Entries of the activity that are kept. */
  readonly activityLength?: number;
}

/** Keys, plans and decisions in Redis, shared by any number of gateways. */
export function redisBackend(
  redis: RedisConnection,
  plans: () => PlanTable,
  logger: Logger,
  { localsOf = (known) => known, connectOperators = async () => redis, activityLength }: RedisBackendOptions = {},
): Backend {
  const calls = new CallCounts();
  const connectedSince = watchConnection(redis);
  const timeoutMs = timeoutOf(redis);
  const shared = isCluster(redis)
    ? new ClusterLimiter(redis, plans, { calls, timeoutMs })
    : new RedisLimiter(redis, plans, { calls, timeoutMs });
  const limiter = surviveOutages(shared, localsOf(new KnownKeys(plans)), {
    logger,
    timeoutMs,
    nodeOf: isCluster(redis) ? nodeOf(redis) : undefined,
  });
  const remembering = rememberBans(limiter);
  let operators: RedisConnection | undefined;
  let edits: EditWatch | undefined;
  const trailOn = (connection: RedisConnection) =>
    new Trail(connection, {
      ...(activityLength !== undefined && { length: activityLength }),
      onLost: (activity, reason) =>
        logger.error({ activity, reason }, 'a change is in force, but the activity does not have it'),
    });
  return {
    limiter: remembering,
    keys: new RedisKeys(redis),
    plans: new RedisPlans(redis, trailOn(redis)),
    async operators() {
      operators = await connectOperators();
      const trail = trailOn(operators);
      const keys = new RedisKeys(operators, trail);
      edits = new EditWatch(trail, (id) => keys.read(id), logger);
      void edits.run();
      return {
        keys,
        plans: new RedisPlans(operators, trail),
        activity: new RedisActivity(trail),
        tokens: new RedisTokens(trail),
        backups: new RedisBackupNotes(operators),
      };
    },
    loadScript: () => loadScript(redis),
    bans: () => remembering.bans(),
    nodesAway: () => limiter.nodesAway(),
    redis: () => ({ isConnected: redis.status === 'ready', since: connectedSince(), lastCall: calls.last }),
    counted: () => calls.families(),
    memoryUsed: () => memoryUsed(redis),
    check: () => checkRedis(redis),
    async close() {
      limiter.stop();
      edits?.stop();
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
  // The library changes the status before it tells of it; an attempt that fails is no new loss.
  for (const event of ['ready', 'close']) redis.on(event, look);
  return () => since;
}

function timeoutOf(redis: RedisConnection): number {
  const { commandTimeout = DEFAULT_TIMEOUT_MS } = isCluster(redis) ? (redis.options.redisOptions ?? {}) : redis.options;
  return commandTimeout;
}
