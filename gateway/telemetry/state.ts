import type { Metrics } from '../../shared/process/metrics.ts';
import type { WatchedCertificate } from '../certificate.ts';
import type { PlanCache } from '../stores/plan-cache.ts';
import type { Backend } from '../stores/stores.ts';
import type { Forwarder } from '../upstream/forwarder.ts';
import type { KeyWatch } from './key-watch.ts';

/**
 * The state of a process that serves clients, read on each scrape. It is exposed per worker, because a sum has no
 * meaning.
 */
export function exposeState(
  metrics: Metrics,
  backend: Pick<Backend, 'nodesAway'> & { readonly planCache: PlanCache },
  forwarder: Forwarder,
  watch: KeyWatch,
): void {
  const { planCache } = backend;
  metrics.gauge('gateway_redis_nodes_away', 'Nodes of Redis in whose place decisions are local.', backend.nodesAway);
  metrics.gauge(
    'gateway_bans_active',
    'Keys that are banned, as far as this process has heard.',
    () => watch.counts().bans,
  );
  metrics.gauges(
    'gateway_keys_near_day_limit',
    'Keys that have used 80 % of their day limit, as far as this process has heard of them.',
    'plan',
    () => watch.counts().near,
  );
  metrics.gauges(
    'gateway_keys_asking',
    'Keys that were decided on in the last ten minutes, as far as this process has heard of them.',
    'plan',
    () => watch.counts().asking,
  );
  metrics.gauges(
    'gateway_keys_refused',
    'Keys of which a request was refused for its limits in the last ten minutes, as far as this process has heard.',
    'plan',
    () => watch.counts().refused,
  );
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
  metrics.gauge(
    'gateway_upstream_names_lost',
    'Names of cores that cannot be resolved; their last addresses are in use.',
    () => forwarder.namesLost(),
  );
  byCore('limit', 'Requests that a core may be asked at once.', ({ limit }) => limit);
}

/** Without TLS there are no series. */
export function exposeCertificate(metrics: Metrics, certificate: WatchedCertificate | undefined): void {
  metrics.gauge(
    'gateway_certificate_expires_timestamp_seconds',
    'When the certificate that clients are shown ends.',
    () => certificate?.expiresAt(),
  );
  metrics.gauge(
    'gateway_certificate_rejected',
    '1 while the certificate files are bad and the last good ones are in use.',
    () => certificate && Number(certificate.isRejected()),
  );
}

/** Exposed once per gateway. Redis is asked on each scrape; a node that does not answer shows no series. */
export function exposeRedisMemory(metrics: Metrics, { memoryUsed }: Pick<Backend, 'memoryUsed'>): void {
  metrics.gauges(
    'gateway_redis_memory_used_ratio',
    'Memory of a node of Redis that is used, of its maxmemory, or of its machine where that is not set.',
    'node',
    memoryUsed,
  );
}

/** Exposed once per gateway. The store is asked on each scrape. */
export function exposeBackup(metrics: Metrics, last: () => Promise<number | undefined>): void {
  metrics.gauge(
    'gateway_backup_completed_timestamp_seconds',
    'When the last complete backup of all keys was made; 0 if there are keys and none was made.',
    last,
  );
}
