import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Credential, createApiKey, parseApiKey } from '../../../gateway/limiter/credential.ts';
import { DEFAULT_PLANS } from '../../../gateway/limiter/plans.ts';
import { Keys } from '../../../gateway/stores/keys.ts';
import { connectRedis } from '../../../gateway/stores/redis/connection.ts';
import { RedisLimiter } from '../../../gateway/stores/redis/limiter.ts';
import { RedisStorage } from '../../../gateway/stores/redis/storage.ts';
import { createLogger } from '../../../shared/process/logger.ts';
import { targetOf } from '../../support/redis-target.ts';
import { secretWith } from '../../support/secrets.ts';
import { median, sum } from '../../support/statistics.ts';
import { listsOf } from '../load/asks.ts';
import { runWrk } from '../load/load.ts';
import { installPrograms } from '../machine/programs.ts';
import { describeMachine, usageOf } from '../machine/usage.ts';
import { connectTo, startGateway } from '../setup/gateway.ts';
import { issueKeys } from '../setup/keys.ts';
import { scriptCalls, setStage } from '../setup/stage.ts';
import { type Costs, type RedisCosts, sizeFor } from './model.ts';

/**
 * Measures the costs of a request, a decision, a key and a connection. From them, the capacity model computes the
 * servers and the memory for a thousand, a hundred thousand and ten million requests per second.
 *
 *     node test/bench/scale/costs.ts
 */

const ROUNDS = 7;
const ROUND_MS = 400;
/** The number of concurrent decisions, which share calls. */
const MANY = 32;
const CONNECTIONS = 32;
const IDLE_CONNECTIONS = 2_000;
const SAMPLE_KEYS = 1_000;
const DAY_MICROSECONDS = 86_400e6;
const MINUTE_MICROSECONDS = 60e6;
/** The maximum number of days and of minutes for which a key's usage counts are kept. */
const DAYS_USED = 36;
const MINUTES_USED = 61;
const LOADS = [1e3, 1e5, 1e7];
const KEYS = 1e8;

installPrograms();
const stage = await setStage();
const { hot, many } = await issueKeys(stage.client);
const credential = parseApiKey(hot) as Credential;
const gateway = await startGateway('gateway', stage, { REDIS_URL: stage.redisUrl });
const url = gateway.urls.gateway ?? '';
const connection = await connectRedis(
  targetOf('single', stage.redisUrl, { timeoutMs: 5_000 }),
  createLogger('bench', 'warn'),
);
const keys = new Keys(new RedisStorage(connection));

/** The CPU time per request in the gateway and in the core, in µs, and the number of decisions per call. */
async function underLoad() {
  const pids = [gateway.pid, stage.core.pid];
  const cpus = () => pids.map((pid) => usageOf(pid).cpuMicroseconds);
  const [before, callsBefore] = [cpus(), await scriptCalls(stage.client)];
  const { requests } = await runWrk({ url, connections: CONNECTIONS, seconds: 1, asks: listsOf([hot]) });
  const [ofGateway = 0, ofCore = 0] = cpus().map((cpu, at) => (cpu - (before[at] ?? 0)) / requests);
  return { ofGateway, ofCore, perCall: requests / ((await scriptCalls(stage.client)) - callsBefore) };
}

/**
 * Computes the CPU time in Redis for a call and for each decision in it, from alternating calls with one decision and
 * with many.
 * @param credentials used in turn; with a single one, a call decides several requests with the same key
 */
async function calibrate(credentials: readonly Credential[]): Promise<RedisCosts> {
  const limiter = new RedisLimiter(connection, { table: DEFAULT_PLANS });
  let turn = 0;
  const decide = () => limiter.decide(credentials[turn++ % credentials.length] as Credential);
  await microsecondsPerDecision(decide, MANY);
  const [alone, together]: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    alone.push(await microsecondsPerDecision(decide, 1));
    together.push(await microsecondsPerDecision(decide, MANY));
  }
  // alone = call + decision, together = call / MANY + decision
  const call = (median(alone) - median(together)) / (1 - 1 / MANY);
  return { call, decision: median(alone) - call };
}

/** The CPU time in Redis per decision. Requests that arrive during a call are decided by the next one. */
async function microsecondsPerDecision(decide: () => Promise<unknown>, inFlight: number): Promise<number> {
  const before = usageOf(stage.redis.pid).cpuMicroseconds;
  const end = performance.now() + ROUND_MS;
  let decisions = 0;
  const caller = async () => {
    for (; performance.now() < end; decisions++) await decide();
  };
  await Promise.all(Array.from({ length: inFlight }, caller));
  return (usageOf(stage.redis.pid).cpuMicroseconds - before) / decisions;
}

/** The bytes of one request and its response, excluding TCP and IP headers. */
async function bytesPerRequest(): Promise<number> {
  const socket = await connectTo(url);
  socket.write(`GET /v1/pets HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer ${hot}\r\n\r\n`);
  socket.resume();
  await once(socket, 'close');
  return socket.bytesWritten + socket.bytesRead;
}

/** The bytes of a decision that has a call of its own. */
async function bytesPerDecision(): Promise<number> {
  const limiter = new RedisLimiter(connection, { table: DEFAULT_PLANS });
  const traffic = async () => {
    const statistics = await stage.client.info('stats');
    return sum([...statistics.matchAll(/total_net_(?:in|out)put_bytes:(\d+)/g)].map(([, bytes]) => Number(bytes)));
  };
  const [first, second] = [await traffic(), await traffic()];
  for (let at = 0; at < SAMPLE_KEYS; at++) await limiter.decide(credential);
  return ((await traffic()) - second - (second - first)) / SAMPLE_KEYS;
}

/**
 * The memory per key, for keys used on every recorded day and in every minute of the last hour; this is the maximum for
 * a key.
 */
async function bytesPerKey(): Promise<number> {
  const memory = async () => Number(/used_memory:(\d+)/.exec(await stage.client.info('memory'))?.[1]);
  const before = await memory();
  let now = Date.now() * 1_000;
  const limiter = new RedisLimiter(connection, { table: DEFAULT_PLANS }, { clock: () => now });
  const credentials = await Promise.all(Array.from({ length: SAMPLE_KEYS }, createKey));
  const steps = [...Array(DAYS_USED).fill(DAY_MICROSECONDS), ...Array(MINUTES_USED).fill(MINUTE_MICROSECONDS)];
  for (const step of steps) {
    now += step;
    await Promise.all(credentials.map((one) => limiter.decide(one)));
  }
  return ((await memory()) - before) / SAMPLE_KEYS;
}

/** The memory of a key's entry in the index of all keys, which is one sorted set on one shard. */
async function bytesInIndex(): Promise<number> {
  const bytes = (await stage.client.memory('USAGE', 'gateway:keys', 'SAMPLES', 0)) as number;
  return bytes / (await stage.client.zcard('gateway:keys'));
}

async function createKey(): Promise<Credential> {
  const { credential: made } = createApiKey();
  const secrets = [secretWith(made.digest)];
  await keys.create(made.id, { plan: 'pro', name: 'a key with a name', secrets, createdAt: Date.now() * 1_000 });
  return made;
}

/** The gateway's memory for an idle connection. */
async function bytesPerConnection(): Promise<number> {
  const resident = () => usageOf(gateway.pid).residentMegabytes * 2 ** 20;
  const before = resident();
  const sockets = await Promise.all(Array.from({ length: IDLE_CONNECTIONS }, () => connectTo(url)));
  await sleep(500);
  const used = (resident() - before) / IDLE_CONNECTIONS;
  for (const socket of sockets) socket.destroy();
  return used;
}

const idleConnection = await bytesPerConnection();
await underLoad();
const rounds = [];
for (let round = 0; round < ROUNDS; round++) rounds.push(await underLoad());
const perCall = median(rounds.map((round) => round.perCall));
const redis = await calibrate(many.map((key) => parseApiKey(key) as Credential));
const { decision: ofSameKey } = await calibrate([credential]);
const costs: Costs = {
  gatewayMicroseconds: median(rounds.map(({ ofGateway }) => ofGateway)),
  coreMicroseconds: median(rounds.map(({ ofCore }) => ofCore)),
  redis,
  bytesPerKey: await bytesPerKey(),
  bytesPerConnection: idleConnection,
  bytesPerRequest: await bytesPerRequest(),
  bytesPerDecision: await bytesPerDecision(),
};

const say = (text: string) => process.stdout.write(`${text}\n`);
const line = (cells: readonly unknown[]) => say(cells.map((cell) => String(cell).padStart(14)).join(''));
say(`${describeMachine()}\n`);
say(
  `a request: ${costs.gatewayMicroseconds.toFixed(0)} µs in the gateway, ${costs.coreMicroseconds.toFixed(0)} µs in the core`,
);
say(
  `a decision: ${redis.call.toFixed(1)} µs of Redis per call, ${redis.decision.toFixed(1)} per key in it and ${ofSameKey.toFixed(1)} per further request of that key; ${perCall.toFixed(1)} decisions per call on ${CONNECTIONS} connections`,
);
say(
  `a key: at most ${costs.bytesPerKey.toFixed(0)} bytes in Redis, ${(await bytesInIndex()).toFixed(0)} of them in the index; a connection: ${(idleConnection / 1_024).toFixed(0)} kB in the gateway`,
);
say(
  `on the wire: ${costs.bytesPerRequest} bytes per request and response, ${costs.bytesPerDecision.toFixed(0)} per decision\n`,
);
line(['requests/s', 'a call', 'gateways', 'shards', 'cores', 'Gbit/s', `GB, ${KEYS.toExponential()} keys`]);
for (const load of LOADS) {
  // A single Redis decides all requests of an event loop turn in one call. A cluster needs one call per key.
  for (const shared of load <= 1e5 ? [perCall, 1] : [1]) {
    const need = sizeFor(load, KEYS, shared, costs);
    line([
      load.toLocaleString('en'),
      shared.toFixed(1),
      need.gateways,
      need.shards,
      need.cores,
      need.gigabitsPerSecond.toFixed(2),
      need.redisGigabytes.toFixed(0),
    ]);
  }
}
process.exit(0);
