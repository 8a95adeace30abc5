/**
 * The capacity model: from what one request, one decision and one key cost to what any load needs. Its numbers are measured
 * by `costs.ts`; `simulate.ts` holds the part about Redis against a cluster that runs.
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

export interface Sizing {
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

/**
 * Decisions that share a call of one key at one gateway, if its requests come by themselves: a call takes all that came
 * while the one before it was under way, and one where none came: λT + e^-λT.
 * @param perSecond requests of the key at that gateway
 * @param roundTripSeconds of a call
 */
export function decisionsPerCall(perSecond: number, roundTripSeconds: number): number {
  const meanwhile = perSecond * roundTripSeconds;
  return meanwhile + Math.exp(-meanwhile);
}

/** Of so many requests of a key in so many seconds, those that its bucket lets through. */
export function admittedOf(requests: number, seconds: number, capacity: number, refillPerSecond: number): number {
  return Math.min(requests, capacity + refillPerSecond * seconds);
}

/** µs of a shard's CPU in a second for one key. */
export function redisMicroseconds(perSecond: number, perCall: number, { call, decision }: RedisCosts): number {
  return (perSecond / perCall) * call + perSecond * decision;
}

/** So many processes of a kind, and how much of a CPU each may take. */
export interface Share {
  readonly count: number;
  readonly cpus: number;
}

/**
 * The most requests a second that processes can do, and the kind that gives out first.
 * @param microseconds of CPU that a request costs each kind
 */
export function capacityOf<Kind extends string>(
  shares: Readonly<Record<Kind, Share>>,
  microseconds: Readonly<Record<Kind, number>>,
): { readonly perSecond: number; readonly bottleneck: Kind } {
  const kinds = Object.keys(shares) as Kind[];
  const most = (kind: Kind) => (shares[kind].count * shares[kind].cpus * 1e6) / microseconds[kind];
  const bottleneck = kinds.reduce((least, kind) => (most(kind) < most(least) ? kind : least));
  return { perSecond: most(bottleneck), bottleneck };
}
