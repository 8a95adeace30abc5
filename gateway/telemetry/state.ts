import type { Metrics } from '../../shared/metrics.ts';
import type { Access } from '../access/limiter.ts';
import type { PlanCache } from '../access/plan-cache.ts';
import type { Forwarder } from '../upstream/forward.ts';

/** How a process that serves clients stands, read when somebody asks: each worker's for itself, since no sum would say it. */
export function exposeState(metrics: Metrics, access: Access & { planCache: PlanCache }, forwarder: Forwarder): void {
  const { planCache } = access;
  metrics.gauge('gateway_redis_nodes_away', 'Nodes of Redis in whose place decisions are local.', access.nodesAway);
  metrics.gauge('gateway_bans_active', 'Bans that run, as far as this process has heard of them.', access.bans);
  metrics.gauge(
    'gateway_plans_changed_timestamp_seconds',
    'When the plans in force came to be in force here.',
    () => planCache.changedAt.getTime() / 1_000,
  );
  metrics.gauge(
    'gateway_plans_rejected_values',
    'Values of the plan table that are unusable, the last good ones being in force.',
    () => planCache.rejected.length,
  );
  metrics.gauge('gateway_plans_readable', '1 while the plan table can be read.', () => Number(planCache.isReadable));

  const byCore = (name: string, help: string, read: (state: ReturnType<Forwarder['states']>[number]) => number) =>
    metrics.gauges(`gateway_upstream_${name}`, help, 'core', () =>
      forwarder.states().map((state) => [state.origin, read(state)]),
    );
  byCore('ready', '1 while a core is ready, as far as the gateway knows.', ({ ready }) => Number(ready));
  byCore('in_flight', 'Requests that were handed to a core and not let go of.', ({ inFlight }) => inFlight);
  byCore('queued', 'Of these, those that wait for a connection.', ({ queued }) => queued);
  byCore('limit', 'Requests that a core may be asked at once.', ({ limit }) => limit);
}
