import { totalsOf } from '../telemetry/totals.ts';
import type { AdminOperation } from './parts.ts';
import { shownRejected } from './rejected-values.ts';

/**
 * What clients asked of this gateway since it was started and how it stands, all workers together; cheap enough to be asked
 * for every second.
 */
export const showTraffic: AdminOperation = async ({ parts: { traffic, planCache } }) => {
  const { totals, plans } = totalsOf(traffic.counted());
  return {
    status: 200,
    body: {
      since: traffic.since.toISOString(),
      mode: traffic.isLocal() ? 'local' : 'shared',
      totals,
      plans,
      planTable: {
        version: planCache.version,
        changedAt: planCache.changedAt.toISOString(),
        rejectedValues: planCache.rejected.length,
        rejected: shownRejected(planCache.rejected),
      },
    },
  };
};
