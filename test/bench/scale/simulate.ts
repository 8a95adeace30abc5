import { setTimeout as sleep } from 'node:timers/promises';
import slotOf from 'cluster-key-slot';
import { type Credential, createApiKey } from '../../../gateway/limiter/credential.ts';
import type { Limiter } from '../../../gateway/limiter/limiter.ts';
import { DEFAULT_PLANS } from '../../../gateway/limiter/plans.ts';
import { Keys } from '../../../gateway/stores/keys.ts';
import { redisBackend } from '../../../gateway/stores/redis/backend.ts';
import { connect } from '../../../gateway/stores/redis/connect.ts';
import type { Backend } from '../../../gateway/stores/stores.ts';
import { createLogger } from '../../../shared/process/logger.ts';
import { secretWith } from '../../support/secrets.ts';
import { median, sum } from '../../support/statistics.ts';
import { installPrograms } from '../machine/programs.ts';
import { describeMachine } from '../machine/usage.ts';
import { scriptCalls } from '../setup/stage.ts';
import { calibrate } from './calibrate.ts';
import { type Shard, startCluster } from './cluster.ts';
import { admittedOf, decisionsPerCall, type RedisCosts, redisMicroseconds } from './model.ts';
import { rateOf, replay, type Traffic, zipf } from './traffic.ts';

/**
 * Holds the capacity model against what happens: gateways' own limiters on a Redis Cluster of this machine, with the real
 * decide.lua, under keys as unequal as real ones, bursts, and then without one of the shards.
 *
 *     node test/bench/scale/simulate.ts
 */

const GATEWAYS = 3;
const SHARDS = 3;
const KEYS = 2_000;
const MINUTE_LIMIT = 600;
const TRAFFIC: Traffic = { perSecond: 3_000, seconds: 15, shares: zipf(KEYS), burst: 5 };
const AFTER_LOSS: Traffic = { ...TRAFFIC, seconds: 8 };
/** For the others to notice. */
const LOST_FOR_SECONDS = 2.5;
const IDLE_MS = 3_000;
const PLANS = { ...DEFAULT_PLANS, pro: { ...DEFAULT_PLANS.pro, minute: MINUTE_LIMIT, day: 1e9, ban_after: 1e9 } };

installPrograms();
const progress = (text: string) => process.stderr.write(`${text}\n`);
progress(`starting ${SHARDS} shards, ${GATEWAYS} gateways' limiters, ${KEYS.toLocaleString('en')} keys`);
const shards = await startCluster(SHARDS);
const slots = await ownersOfSlots();
const limiters = await Promise.all(Array.from({ length: GATEWAYS }, startLimiter));
const credentials = await Promise.all(Array.from({ length: KEYS }, createKey));

async function ownersOfSlots(): Promise<Shard[]> {
  const owners: Shard[] = [];
  for (const [first, last, node] of await (shards[0] as Shard).client.cluster('SLOTS')) {
    const owner = shards.find(({ url }) => new URL(url).port === String(node?.[1])) as Shard;
    for (let slot = first; slot <= last; slot++) owners[slot] = owner;
  }
  return owners;
}

async function startLimiter() {
  const urls = shards.map(({ url }) => url);
  const none = {
    masterName: undefined,
    sentinelUsername: undefined,
    ca: undefined,
    credentials: () => ({ username: '', password: '' }),
  };
  const logger = createLogger('bench', 'silent');
  const redis = await connect({ mode: 'cluster', urls, timeoutMs: 250, startMs: 3_000, ...none }, logger);
  return redisBackend(redis, () => PLANS, logger);
}

async function createKey(): Promise<Credential> {
  const { credential } = createApiKey();
  const record = {
    plan: 'pro',
    name: 'bench',
    secrets: [secretWith(credential.digest)],
    createdAt: Date.now() * 1_000,
  } as const;
  await new Keys((limiters[0] as Backend).storage).create(credential.id, record);
  return credential;
}

const ownerOf = (key: number): Shard => slots[slotOf((credentials[key] as Credential).id)] as Shard;

interface Seen {
  readonly key: number;
  readonly outcome: 'admitted' | 'refused' | 'failed';
  readonly isLocal: boolean;
  readonly ms: number;
}

interface Phase {
  readonly seen: readonly Seen[];
  readonly seconds: number;
  /** Of each shard, µs and calls of the script; of one that is gone nothing. */
  readonly shards: readonly { readonly cpu: number; readonly calls: number }[];
}

async function run(traffic: Traffic, alive: readonly Shard[]): Promise<Phase> {
  const seen: Seen[] = [];
  const pending = new Set<Promise<unknown>>();
  const before = await Promise.all(alive.map(countersOf));
  const startedAt = performance.now();
  await replay(traffic, (key) => {
    const decision = decide(key).then((one) => seen.push(one));
    pending.add(decision);
    decision.finally(() => pending.delete(decision));
  });
  await Promise.all(pending);
  const seconds = (performance.now() - startedAt) / 1_000;
  const after = await Promise.all(alive.map(countersOf));
  const used = after.map(({ cpu, calls }, at) => ({
    cpu: cpu - (before[at]?.cpu ?? 0),
    calls: calls - (before[at]?.calls ?? 0),
  }));
  return { seen, seconds, shards: used };
}

async function decide(key: number): Promise<Seen> {
  const { limiter } = limiters[Math.floor(Math.random() * GATEWAYS)] as (typeof limiters)[number];
  const startedAt = performance.now();
  const verdict = await limiter.decide(credentials[key] as Credential).catch(() => undefined);
  const ms = performance.now() - startedAt;
  const isDecided = verdict?.outcome === 'admitted' || verdict?.outcome === 'refused';
  return isDecided
    ? { key, outcome: verdict.outcome, isLocal: verdict.mode === 'local', ms }
    : { key, outcome: 'failed', isLocal: false, ms };
}

const countersOf = async ({ client, cpuMicroseconds }: Shard) => ({
  calls: await scriptCalls(client),
  cpu: cpuMicroseconds(),
});

/** What a shard takes of its CPU in a second without being asked anything: its talk with the others. */
async function idleMicroseconds({ cpuMicroseconds }: Shard): Promise<number> {
  const before = cpuMicroseconds();
  await sleep(IDLE_MS);
  return ((cpuMicroseconds() - before) / IDLE_MS) * 1_000;
}

const keys = Array.from({ length: KEYS }, (_, key) => key);

function row(what: string, predicted: number, measured: number, digits = 1): void {
  const [first, second] = [predicted, measured].map((value) => value.toFixed(digits).padStart(12));
  process.stdout.write(`${what.padEnd(58)}${first}${second}${(measured / predicted).toFixed(2).padStart(8)}\n`);
}

function tellInOrder({ seen, seconds, shards: used }: Phase, costs: RedisCosts, idle: number): void {
  // Keys that come seldom wait for nobody: what they take is what a call takes.
  const roundTrip = median(seen.filter(({ key }) => key > KEYS / 2).map(({ ms }) => ms)) / 1_000;
  const perCall = (key: number) => decisionsPerCall(rateOf(TRAFFIC, key) / GATEWAYS, roundTrip);
  const rate = sum(keys.map((key) => rateOf(TRAFFIC, key)));
  row('decisions a second', rate, seen.length / seconds, 0);
  row(
    'decisions a call',
    rate / sum(keys.map((key) => rateOf(TRAFFIC, key) / perCall(key))),
    seen.length / sum(used.map(({ calls }) => calls)),
    3,
  );
  for (const [at, shard] of shards.entries()) {
    const own = keys.filter((key) => ownerOf(key) === shard);
    const share = sum(own.map((key) => rateOf(TRAFFIC, key))) / rate;
    row(
      `shard ${at + 1}: % of the decisions`,
      100 * share,
      (100 * seen.filter(({ key }) => ownerOf(key) === shard).length) / seen.length,
    );
    const cpu = sum(own.map((key) => redisMicroseconds(rateOf(TRAFFIC, key), perCall(key), costs)));
    row(`shard ${at + 1}: % of a CPU`, (idle + cpu) / 1e4, (used[at]?.cpu ?? 0) / seconds / 1e4);
  }
  const admitted = keys.map((key) =>
    admittedOf(rateOf(TRAFFIC, key) * seconds, seconds, MINUTE_LIMIT, MINUTE_LIMIT / 60),
  );
  row('admitted', sum(admitted), seen.filter(({ outcome }) => outcome === 'admitted').length, 0);
}

/** Every gateway decides the lost shard's keys by itself, as far as it has seen them. */
function tellWithout(lost: Shard, { seen }: Phase): void {
  const own = keys.filter((key) => ownerOf(key) === lost);
  const rate = sum(keys.map((key) => rateOf(TRAFFIC, key)));
  const isSeen = (key: number) => 1 - Math.exp((-rateOf(TRAFFIC, key) / GATEWAYS) * TRAFFIC.seconds);
  const local = sum(own.map((key) => rateOf(TRAFFIC, key) * isSeen(key)));
  const unseen = sum(own.map((key) => rateOf(TRAFFIC, key) * (1 - isSeen(key))));
  row(
    'one shard lost: % decided locally',
    (100 * local) / rate,
    (100 * seen.filter(({ isLocal }) => isLocal).length) / seen.length,
  );
  row(
    'one shard lost: % unavailable, of keys not seen before',
    (100 * unseen) / rate,
    (100 * seen.filter(({ outcome }) => outcome === 'failed').length) / seen.length,
  );
  const hottest = own[0] as number;
  row(
    'one shard lost: admitted of its busiest key (3 × the refill)',
    GATEWAYS * (LOST_FOR_SECONDS + AFTER_LOSS.seconds) * (MINUTE_LIMIT / 60),
    seen.filter(({ key, outcome }) => key === hottest && outcome === 'admitted').length,
    0,
  );
}

progress('what a call and a decision cost a shard');
const spare = await createKey();
const costs = await calibrate(limiters[0]?.limiter as Limiter, [spare], slots[slotOf(spare.id)] as Shard);
const idle = await idleMicroseconds(shards[0] as Shard);
progress(`${TRAFFIC.seconds} s of ${TRAFFIC.perSecond.toLocaleString('en')} requests a second`);
const inOrder = await run(TRAFFIC, shards);
const [lost, ...left] = shards as [Shard, ...Shard[]];
progress('one shard is lost');
lost.kill();
await sleep(LOST_FOR_SECONDS * 1_000);
const without = await run(AFTER_LOSS, left);

process.stdout.write(`${describeMachine()}\n`);
process.stdout.write(
  `a call costs a shard ${costs.call.toFixed(1)} µs, each decision in it ${costs.decision.toFixed(1)} µs; a shard that idles takes ${(idle / 1e4).toFixed(1)} % of a CPU\n\n`,
);
process.stdout.write(
  `${''.padEnd(58)}${['predicted', 'measured'].map((head) => head.padStart(12)).join('')}${'ratio'.padStart(8)}\n`,
);
tellInOrder(inOrder, costs, idle);
tellWithout(lost, without);
process.exit(0);
