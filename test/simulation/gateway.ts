import { pino } from 'pino';
import { ChangedKeys } from '../../gateway/limiter/changed-keys.ts';
import type { KnownKeys, LocalDecisions } from '../../gateway/limiter/known-keys.ts';
import type { Limiter } from '../../gateway/limiter/limiter.ts';
import type { PlanTable } from '../../gateway/limiter/plans.ts';
import { confirmed, type Tell } from '../../gateway/primary/confirmed.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { PlanCache } from '../../gateway/stores/plan-cache.ts';
import { Plans } from '../../gateway/stores/plans.ts';
import { redisBackend } from '../../gateway/stores/redis/backend.ts';
import { type Link, NetworkConnection } from './network.ts';

export const TIMEOUT_MS = 250;
const OPERATORS_TIMEOUT_MS = 5_000;
const LOAD_AGAIN_MS = 250;

const logger = pino({ level: 'silent' });

/** Where a deliberate break gets into a gateway. */
export interface Wrappers {
  limiter?(limiter: Limiter): Limiter;
  locals?(known: KnownKeys): LocalDecisions;
  tell?(tell: Tell): Tell;
  plans?(table: PlanTable): PlanTable;
  readonly timeoutMs?: number;
}

export interface Gateway {
  readonly limiter: Limiter;
  /** As operators change them through this gateway. */
  readonly keys: Keys;
  readonly plans: Plans;
  nodesAway(): number;
  isConnected(): boolean;
  /** Whether what it sends to Redis now is answered in time. */
  isWell(): boolean;
  close(): Promise<void>;
}

/** One gateway with its product code: what open-backend.ts and worker.ts compose for one process. */
export async function startGateway(link: Link, wrappers: Wrappers = {}): Promise<Gateway> {
  const changedKeys = new ChangedKeys();
  const connection = new NetworkConnection(link, wrappers.timeoutMs ?? TIMEOUT_MS);
  const plansOf = () => wrappers.plans?.(planCache.known) ?? planCache.known;
  const backend = redisBackend(connection, plansOf, logger, {
    changedKeys,
    localsOf: wrappers.locals,
    connectOperators: async () => new NetworkConnection(link, OPERATORS_TIMEOUT_MS),
  });
  const planCache = new PlanCache(new Plans(backend.storage), logger);
  let isOpen = true;
  const load = async () => {
    if (isOpen && !(await backend.loadScript())) setTimeout(load, LOAD_AGAIN_MS);
  };
  void planCache.start().then(load);
  const tell: Tell = async (changed) => {
    if ('key' in changed) changedKeys.note(changed.key);
    else planCache.take(changed.plans);
  };
  const storage = confirmed(await backend.operatorsStorage(), wrappers.tell?.(tell) ?? tell);
  return {
    limiter: wrappers.limiter?.(backend.limiter) ?? backend.limiter,
    keys: new Keys(storage),
    plans: new Plans(storage),
    nodesAway: backend.nodesAway,
    isConnected: () => connection.status === 'ready',
    isWell: () => connection.isWell(TIMEOUT_MS) && planCache.version !== undefined,
    async close() {
      isOpen = false;
      await Promise.all([backend.close(), planCache.stop()]);
    },
  };
}
