import type { Metrics } from '../../shared/process/metrics.ts';
import type { WatchedCertificate } from '../certificate.ts';
import type { Backend } from '../stores/backend.ts';
import type { PlanCache } from '../stores/plan-cache.ts';
import type { Forwarder } from '../upstream/forwarder.ts';
import type { KeyWatch } from './key-watch.ts';

/**
 * Exposes the state of a process that serves clients, which is read on each scrape. It is exposed per worker, because a
 * sum would have no meaning.
 */
export function exposeState(
  metrics: Metrics,
  backend: Pick<Backend, 'nodesAway'> & { readonly planCache: PlanCache },
  forwarder: Forwarder,
  watch: KeyWatch,
): void {
  const { planCache } = backend;
  metrics.gauge(
    'gateway_redis_nodes_away',
    'Redis nodes that are unavailable, so that their decisions are made locally.',
    backend.nodesAway,
  );
  metrics.gauge('gateway_bans_active', 'Banned keys, as far as this process knows.', () => watch.counts().bans);
  metrics.gauges(
    'gateway_keys_near_day_limit',
    'Keys with at most a fifth of their day limit left, as far as this process knows.',
    'plan',
    () => watch.counts().near,
  );
  metrics.gauges(
    'gateway_keys_asking',
    'Keys with a decision in the last ten minutes, as far as this process knows.',
    'plan',
    () => watch.counts().asking,
  );
  metrics.gauges(
    'gateway_keys_refused',
    'Keys with a request over their limits in the last ten minutes, as far as this process knows.',
    'plan',
    () => watch.counts().refused,
  );
  metrics.gauge(
    'gateway_plans_changed_timestamp_seconds',
    'When this process last applied a change of the plans.',
    () => planCache.changedAt.getTime() / 1_000,
  );
  metrics.gauge(
    'gateway_plans_rejected_values',
    'Unusable values in the plan table, in whose place the last valid ones are in force.',
    () => planCache.rejected.length,
  );
  metrics.gauge('gateway_plans_readable', '1 while the plan table can be read.', () => Number(planCache.isReadable));

  const byCore = (name: string, help: string, read: (state: ReturnType<Forwarder['states']>[number]) => number) =>
    metrics.gauges(`gateway_upstream_${name}`, help, 'core', () =>
      forwarder.states().map((state) => [state.origin, read(state)]),
    );
  byCore('ready', '1 while a core is ready, as far as the gateway knows.', ({ ready }) => Number(ready));
  byCore('in_flight', 'Requests handed to a core that have not finished.', ({ inFlight }) => inFlight);
  byCore('queued', 'Requests in flight that wait for a connection.', ({ queued }) => queued);
  metrics.gauge(
    'gateway_upstream_names_lost',
    'Core names that cannot be resolved, whose last addresses are still in use.',
    () => forwarder.namesLost(),
  );
  byCore('limit', 'The current limit of concurrent requests to a core.', ({ limit }) => limit);
}

/** Without TLS these families have no series. */
export function exposeCertificate(metrics: Metrics, certificate: WatchedCertificate | undefined): void {
  metrics.gauge('gateway_certificate_expires_timestamp_seconds', 'When the certificate that clients see expires.', () =>
    certificate?.expiresAt(),
  );
  metrics.gauge(
    'gateway_certificate_rejected',
    '1 while the certificate files are invalid and the last valid ones are in use.',
    () => certificate && Number(certificate.isRejected()),
  );
}

/** It is exposed once per gateway. Redis is asked on each scrape; a node that does not answer has no series. */
export function exposeRedisMemory(metrics: Metrics, { memoryUsed }: Pick<Backend, 'memoryUsed'>): void {
  metrics.gauges(
    'gateway_redis_memory_used_ratio',
    "Used memory of a Redis node, as a ratio of its maxmemory, or of its machine's memory if that is not set.",
    'node',
    memoryUsed,
  );
}

/** It is exposed once per gateway. The store is asked on each scrape. */
export function exposeBackup(metrics: Metrics, last: () => Promise<number | undefined>): void {
  metrics.gauge(
    'gateway_backup_completed_timestamp_seconds',
    'When the last complete backup of all keys was made; 0 if there are keys but no backup.',
    last,
  );
}
