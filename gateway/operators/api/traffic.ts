import { totalsOf } from '../../telemetry/state.ts';
import type { MinutesAnswer, TrafficAnswer } from './answers.ts';
import { coresOf, redisOf } from './dependencies.ts';
import type { AdminOperation } from './operation.ts';
import { shownRejected } from './rejected-values.ts';

/**
 * Reports the requests of clients since the start of this gateway, and its state, for all workers together. It is cheap
 * enough to poll every second.
 */
export const showTraffic: AdminOperation = async ({ deps: { traffic, planCache, redisMode, health } }) => {
  await health.watch();
  const [counted, processes] = [traffic.source.counted(), traffic.source.processes()];
  const { totals, plans } = totalsOf(counted);
  return {
    status: 200,
    body: {
      since: traffic.since.toISOString(),
      mode: traffic.mode.isLocal ? 'local' : 'shared',
      modeSince: traffic.mode.since.toISOString(),
      health: health.worst(),
      workers: traffic.source.workers?.(),
      processes: processes.length,
      cores: coresOf(processes),
      redis: redisOf(processes, counted, redisMode),
      totals,
      plans,
      planTable: {
        version: planCache.version,
        changedAt: planCache.changedAt.toISOString(),
        rejectedValues: planCache.rejected.length,
        rejected: shownRejected(planCache.rejected),
      },
    } satisfies TrafficAnswer,
  };
};

/** Reports the last hour by minute, the oldest first. The last minute is still running. */
export const showMinutes: AdminOperation = async ({ deps: { traffic } }) => ({
  status: 200,
  body: { since: traffic.since.toISOString(), minutes: traffic.minutes() } satisfies MinutesAnswer,
});
