/**
 * The capacity model: from what one request, one decision and one key cost to what any load needs. Its numbers are measured
 * by `costs.ts`.
 */

export interface Costs {
  /** µs of CPU a request, of one process under load. */
  readonly gatewayMicroseconds: number;
  readonly coreMicroseconds: number;
  readonly redis: RedisCosts;
  /** Of Redis' memory, for a key that is in use. */
  readonly bytesPerKey: number;
  /** Of the gateway's memory, for a connection that is open. */
  readonly bytesPerConnection: number;
  /** On the wire for one request and its answer, at the client's side of the gateway. */
  readonly bytesPerRequest: number;
  /** On the wire for one decision, both ways. */
  readonly bytesPerDecision: number;
}

/** A call that decides n requests costs `call` + n × `decision` µs of Redis' CPU. */
export interface RedisCosts {
  readonly call: number;
  readonly decision: number;
}

interface Sizing {
  readonly gateways: number;
  readonly shards: number;
  readonly cores: number;
  readonly gigabitsPerSecond: number;
  readonly redisGigabytes: number;
}

/** Of a CPU; the rest is for bursts, and for what the others leave when one is lost. */
export const BUSY = 0.6;

/**
 * What a load needs, in CPUs: a gateway process, a shard and a core have one each.
 * @param perCall decisions that share a call: 1 where every key is asked with seldom
 */
export function sizeFor(perSecond: number, keys: number, perCall: number, costs: Costs): Sizing {
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
