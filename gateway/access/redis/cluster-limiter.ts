import type { Credential } from '../credential.ts';
import type { Limiter } from '../limiter.ts';
import type { PlanTable } from '../plans.ts';
import type { Verdict } from '../verdict.ts';
import type { CallCounts } from './call-counts.ts';
import type { ClusterConnection } from './cluster.ts';
import { SCRIPTS } from './connection.ts';
import { RedisLimiter } from './limiter.ts';

type Decider = Pick<ClusterConnection, 'decide'>;

interface Lane {
  readonly limiter: RedisLimiter;
  waiting: number;
}

/**
 * Decides in a cluster: a call per API key, one under way at a time for each of them. No call holds two keys, for two keys on
 * one slot are rare, and while that slot migrates such a call is refused (TRYAGAIN) until both have moved. Keys do not wait for
 * each other, so that a node that is slow holds up nobody else.
 */
export class ClusterLimiter implements Limiter {
  readonly #redis: Decider;
  readonly #plans: () => PlanTable;
  readonly #calls: CallCounts | undefined;
  /** Of the keys that are being decided on. */
  readonly #lanes = new Map<string, Lane>();

  constructor(cluster: ClusterConnection, plans: () => PlanTable, calls?: CallCounts) {
    this.#redis = withScript(cluster);
    this.#plans = plans;
    this.#calls = calls;
  }

  async decide(credential: Credential): Promise<Verdict> {
    const lane = this.#laneOf(credential.id);
    lane.waiting += 1;
    try {
      return await lane.limiter.decide(credential);
    } finally {
      lane.waiting -= 1;
      if (lane.waiting === 0) this.#lanes.delete(credential.id);
    }
  }

  peek(credential: Credential): Promise<Verdict> {
    return new RedisLimiter(this.#redis, this.#plans).peek(credential);
  }

  #laneOf(id: string): Lane {
    const known = this.#lanes.get(id);
    if (known !== undefined) return known;
    const lane = { limiter: new RedisLimiter(this.#redis, this.#plans, { calls: this.#calls }), waiting: 0 };
    this.#lanes.set(id, lane);
    return lane;
  }
}

/**
 * The library takes a node for one that has the script as soon as it was sent there, though the node may have redirected it;
 * and of two NOSCRIPT in a row it takes the second for an answer. Nothing was run then: it is sent once more, with its text.
 */
function withScript(cluster: ClusterConnection): Decider {
  return {
    async decide(...parameters) {
      try {
        return await cluster.decide(...parameters);
      } catch (fault) {
        if (!(fault as Error).message.startsWith('NOSCRIPT ')) throw fault;
        return (await cluster.eval(SCRIPTS.decide.lua, ...parameters)) as string[];
      }
    },
  };
}
