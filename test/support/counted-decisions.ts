import type { Scrape } from './scrape.ts';

/** Answers of status 5xx that a service has counted. */
export function serverErrors(metrics: Scrape, service: 'gateway' | 'gateway_admin' | 'core'): number {
  const failed = metrics.series(`${service}_requests_total`).filter(({ labels }) => labels.status?.startsWith('5'));
  return failed.reduce((sum, { value }) => sum + value, 0);
}

/**
 * What is untrue of a gateway's count of decisions: every request is counted once, as a decision or as none, and Redis has
 * taken each that is counted as its own, but for bans that it told of already.
 */
export function miscounted(metrics: Scrape): string[] {
  const sum = (name: string, labels = {}) => metrics.sum(name, labels) ?? 0;
  const requests = sum('gateway_requests_total');
  const decided = sum('gateway_decisions_total');
  const without = sum('gateway_requests_without_decision_total');
  const shared = sum('gateway_decisions_total', { mode: 'shared' });
  const banned = sum('gateway_decisions_total', { mode: 'shared', outcome: 'banned' });
  const byRedis = metrics.sum('gateway_redis_batch_size_sum');
  return [
    ...(decided + without === requests ? [] : [`${requests} requests, ${decided} decisions, ${without} without one`]),
    ...(byRedis === undefined || shared - banned <= byRedis
      ? []
      : [`${shared - banned} shared decisions, ${byRedis} that Redis took`]),
  ];
}
