/**
 * The capacity model: it computes what a load needs from the costs of one request, one decision and one key, which
 * `costs.ts` measures.
 */

export interface Costs {
  /** µs of CPU per request, for one process under load. */
  readonly gatewayMicroseconds: number;
  readonly coreMicroseconds: number;
  readonly redis: RedisCosts;
  /** Redis memory for a key in use. */
  readonly bytesPerKey: number;
  /** Gateway memory for an open connection. */
  readonly bytesPerConnection: number;
  /** Network bytes for one request and its response, between client and gateway. */
  readonly bytesPerRequest: number;
  /** Network bytes for one decision, in both directions. */
  readonly bytesPerDecision: number;
}

/** A call that decides n requests costs `call` + n × `decision` µs of Redis' CPU. */
export interface RedisCosts {
  readonly call: number;
  readonly decision: number;
}

/** The planned utilization of a CPU. The rest is for bursts, and for the load of a process that is lost. */
export const BUSY = 0.6;

/**
 * The number of processes for a load. A gateway process, a shard and a core each use one CPU.
 * @param perCall decisions that share a call; 1 if every key is used rarely
 */
export function sizeFor(perSecond: number, keys: number, perCall: number, costs: Costs) {
  const cpus = (microseconds: number) => Math.max(1, Math.ceil((perSecond * microseconds) / 1e6 / BUSY));
  const { call, decision } = costs.redis;
  return {
    gateways: cpus(costs.gatewayMicroseconds),
    shards: cpus(call / perCall + decision),
    cores: cpus(costs.coreMicroseconds),
    gigabitsPerSecond: (perSecond * (costs.bytesPerRequest + costs.bytesPerDecision / perCall) * 8) / 1e9,
    redisGigabytes: (keys * costs.bytesPerKey) / 1e9,
  };
}
