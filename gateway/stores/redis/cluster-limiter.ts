import type { Credential } from '../../limiter/credential.ts';
import type { Question, RemoteLimiter, Verdict } from '../../limiter/limiter.ts';
import type { Charger } from '../../limiter/outage.ts';
import type { PlanTable } from '../../limiter/plans.ts';
import type { ClusterConnection } from './cluster.ts';
import { boundSecrets, RedisLimiter, type RedisLimiterOptions } from './limiter.ts';

/**
 * Decides in a cluster: one call per API key, and one call at a time for each. No call holds two keys. Two keys in one
 * slot are rare, and while that slot migrates such a call is refused (TRYAGAIN) until both have moved. Keys do not wait
 * for each other, so that a slow node delays no other keys.
 */
export class ClusterLimiter implements RemoteLimiter, Charger {
  readonly atOnce = 1;
  readonly #cluster: ClusterConnection;
  readonly #plans: () => PlanTable;
  readonly #options: RedisLimiterOptions;
  /** A limiter for each key with a decision in progress. */
  readonly #lanes = new Map<string, RedisLimiter>();

  constructor(cluster: ClusterConnection, plans: () => PlanTable, options: RedisLimiterOptions = {}) {
    this.#cluster = cluster;
    this.#plans = plans;
    this.#options = { ...options, bound: boundSecrets() };
  }

  decide(credential: Credential): Promise<Verdict> {
    return this.#laneOf(credential.id).decide(credential);
  }

  ask(question: Question): void {
    this.#laneOf(question.credential.id).ask(question);
  }

  peek(credential: Credential): Promise<Verdict> {
    return this.#alone().peek(credential);
  }

  answers(id: string): Promise<boolean> {
    return this.#alone().answers(id);
  }

  charge(debts: Parameters<Charger['charge']>[0]): ReturnType<Charger['charge']> {
    return this.#alone().charge(debts);
  }

  /** A limiter for calls that need not wait for the decisions of a key. */
  #alone(): RedisLimiter {
    return new RedisLimiter(this.#cluster, this.#plans, this.#options);
  }

  #laneOf(id: string): RedisLimiter {
    const known = this.#lanes.get(id);
    if (known !== undefined) return known;
    const onIdle = () => void this.#lanes.delete(id);
    const lane = new RedisLimiter(this.#cluster, this.#plans, { ...this.#options, onIdle });
    this.#lanes.set(id, lane);
    return lane;
  }
}
