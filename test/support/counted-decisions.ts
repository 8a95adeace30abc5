import type { Scrape } from './scrape.ts';
import { sum } from './statistics.ts';

/** The number of 5xx answers that a service has counted. */
export function serverErrors(metrics: Scrape, service: 'gateway' | 'gateway_admin' | 'core'): number {
  const failed = metrics.series(`${service}_requests_total`).filter(({ labels }) => labels.status?.startsWith('5'));
  return sum(failed.map(({ value }) => value));
}

/**
 * Returns the inconsistencies in a gateway's counts. Every request must be counted once, with or without a decision.
 * Each decision that is counted as shared must have been made by Redis, except those on cached bans and refused
 * credentials.
 */
export function miscounted(metrics: Scrape): string[] {
  const count = (name: string, labels = {}) => metrics.sum(name, labels) ?? 0;
  const requests = count('gateway_requests_total');
  const decided = count('gateway_decisions_total');
  const without = count('gateway_requests_without_decision_total');
  const shared = count('gateway_decisions_total', { mode: 'shared' });
  const repeated = sum(
    ['banned', 'unknown', 'disabled', 'expired', 'elsewhere'].map((outcome) =>
      count('gateway_decisions_total', { mode: 'shared', outcome }),
    ),
  );
  const byRedis = metrics.sum('gateway_redis_batch_size_sum');
  return [
    ...(decided + without === requests ? [] : [`${requests} requests, ${decided} decisions, ${without} without one`]),
    ...(byRedis === undefined || shared - repeated <= byRedis
      ? []
      : [`${shared - repeated} shared decisions, ${byRedis} made by Redis`]),
  ];
}
