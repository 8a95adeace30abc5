import { join } from 'node:path';
import { good } from '../../finding.ts';
import { systemClock } from '../clock.ts';
import type { Access } from '../limiter.ts';
import type { PlanTable } from '../plans.ts';
import { FileKeys } from './keys.ts';
import { MemoryLimiter } from './limiter.ts';
import { FilePlans } from './plans.ts';

/** Keys, plans and decisions of a gateway on its own, with nothing else to install. */
export async function memoryAccess(directory: string, plans: () => PlanTable): Promise<Access> {
  const keys = await FileKeys.open(join(directory, 'keys.json'));
  const plansFile = new FilePlans(join(directory, 'plans.json'), join(directory, 'plans-history.json'));
  return {
    limiter: new MemoryLimiter(keys, plans),
    keys,
    plans: plansFile,
    operators: async () => ({ keys, plans: plansFile }),
    bans: () => keys.bans(systemClock()),
    nodesAway: () => 0,
    counted: () => [],
    examine: async () => [good('limits', 'are embedded in this process; with REDIS_URL gateways share them')],
    async close() {},
  };
}
