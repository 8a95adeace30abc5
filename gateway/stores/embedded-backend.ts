import { type CheckResult, fault, good } from '../check-result.ts';
import { type Limiter, StoreUnavailable } from '../limiter/limiter.ts';
import type { PlanTable } from '../limiter/plans.ts';
import type { EmbeddedLimiter } from './embedded-limiter.ts';
import type { Storage } from './storage.ts';
import type { Backend } from './stores.ts';

/** The parts of a gateway without Redis. Some exist only in one of its processes. */
export interface Embedded {
  /** The process that has the storage open knows why changes are refused, and whether only a restart can help. */
  readonly storage: Storage & { fault?(): string | undefined; readonly isCopy?: boolean };
  /** Creates the limiter, in a process that serves clients. */
  readonly limiterOf?: (plans: () => PlanTable) => EmbeddedLimiter;
}

/** Keys, plans and decisions of one gateway, without Redis. The caller opens and closes the storage. */
export function embeddedBackend({ storage, limiterOf }: Embedded, plans: () => PlanTable): Backend {
  const limiter = limiterOf?.(plans);
  return {
    limiter: limiter ?? NOBODY_DECIDES,
    storage,
    operatorsStorage: async () => storage,
    loadScript: async () => true,
    nodesAway: () => 0,
    redis: () => undefined,
    counted: () => [],
    memoryUsed: async () => [],
    check: async () => [
      good('limits', 'are embedded in this gateway; with REDIS_URL gateways share them'),
      checkFault(storage.fault?.(), storage.isCopy ?? false),
    ],
    close: async () => await limiter?.stop(),
  };
}

function checkFault(why: string | undefined, isCopy: boolean): CheckResult {
  if (why === undefined) return good('data', 'is stored in DATA_DIR');
  const advice = isCopy
    ? 'Let DATA_DIR be writable, then start this gateway again: until then it works with a copy of the data.'
    : 'Let DATA_DIR have room, and be writable.';
  return fault('data', `cannot be stored, and changes are refused. ${why}`, advice);
}

const refuse = async () => {
  throw new StoreUnavailable('This process decides nothing.');
};

const NOBODY_DECIDES: Limiter = { decide: refuse, peek: refuse };
