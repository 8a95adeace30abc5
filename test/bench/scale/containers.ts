import { startEngine } from '../../support/containers/engine.ts';
import { buildImage } from '../../support/containers/images.ts';
import { makeStandIns, nameInDeploy } from '../../support/containers/stand-ins.ts';
import { sum } from '../../support/statistics.ts';
import { listsOf } from '../load/asks.ts';
import { runWrk } from '../load/wrk.ts';
import { installPrograms } from '../machine/programs.ts';
import { describeMachine } from '../machine/usage.ts';
import { issueKeysAt, KINDS, type Kind, startFleet, startGround, type Topology } from './fleet.ts';
import { capacityOf } from './model.ts';

/**
 * Holds the capacity model against containers with limits of CPU: one to four gateways, one to three cores, a Redis Cluster
 * of three shards, and one PostgreSQL, scaled down until this machine holds all of them and their load.
 *
 *     node test/bench/scale/containers.ts
 */

const [SHARDS, CORES, GATEWAYS] = [3, 3, 4];
const KEYS = 300;
const CONNECTIONS = 16;
const WARM_SECONDS = 5;
const SECONDS = 8;
/** More than any of them can take here. */
const AMPLE = 1;
const SCARCE: Readonly<Record<Kind, number>> = { gateway: 0.2, core: 0.1, shard: 0.06 };

const topology = (gateways: number, cores: number, scarce?: Kind): Topology => {
  const cpus = (kind: Kind) => (kind === scarce ? SCARCE[kind] : AMPLE);
  return {
    gateway: { count: gateways, cpus: cpus('gateway') },
    core: { count: cores, cpus: cpus('core') },
    shard: { count: SHARDS, cpus: cpus('shard') },
  };
};
const LEARNT_FROM = topology(1, CORES);
const HELD_AGAINST: readonly Topology[] = [
  ...[1, 2, 3, 4].map((gateways) => topology(gateways, CORES, 'gateway')),
  ...[1, 2, 3].map((cores) => topology(GATEWAYS, cores, 'core')),
  topology(GATEWAYS, CORES, 'shard'),
];

const ALL = [...KINDS, 'postgres'] as const;
type Part = (typeof ALL)[number];

interface Measured {
  readonly perSecond: number;
  readonly p50Ms: number;
  /** µs of CPU a request. */
  readonly microseconds: Readonly<Record<Part, number>>;
  /** Shares of what each kind may take. */
  readonly busy: Readonly<Record<Kind, number>>;
}

const progress = (text: string) => process.stderr.write(`${text}\n`);

let keys: readonly string[] = [];

async function measure(held: Topology): Promise<Measured> {
  progress(`${held.gateway.count} gateways, ${held.core.count} cores`);
  const fleet = await startFleet(engine, held);
  if (keys.length === 0) keys = await issueKeysAt(fleet.gatewayUrls[0] as string, KEYS);
  const load = (seconds: number) =>
    Promise.all(
      fleet.gatewayUrls.map((url) => runWrk({ url, connections: CONNECTIONS, seconds, asks: listsOf(keys) })),
    );
  const used = async () => await Promise.all(ALL.map((kind) => fleet.cpuMicroseconds(kind)));
  // Code is compiled while it is warmed up, which a limit would draw out.
  await load(WARM_SECONDS);
  await fleet.limit();
  await load(1);
  const before = await used();
  const results = await load(SECONDS);
  const after = await used();
  const requests = sum(results.map((result) => result.requests));
  const faults = sum(results.map(({ refused, failures }) => refused + failures));
  if (faults > 0) progress(`${faults} of ${requests} requests failed`);
  const seconds = Math.max(...results.map((result) => result.seconds));
  const cpu = Object.fromEntries(ALL.map((kind, at) => [kind, (after[at] ?? 0) - (before[at] ?? 0)])) as Record<
    Part,
    number
  >;
  const busy = (kind: Kind) => cpu[kind] / (seconds * 1e6 * held[kind].count * held[kind].cpus);
  return {
    perSecond: requests / seconds,
    p50Ms: Math.max(...results.map(({ p50Ms }) => p50Ms)),
    microseconds: Object.fromEntries(ALL.map((kind) => [kind, cpu[kind] / requests])) as Record<Part, number>,
    busy: Object.fromEntries(KINDS.map((kind) => [kind, busy(kind)])) as Record<Kind, number>,
  };
}

const row = (cells: readonly unknown[]) => process.stdout.write(`| ${cells.join(' | ')} |\n`);

function tell(held: Topology, { microseconds }: Measured, { perSecond, p50Ms, busy }: Measured): void {
  const predicted = capacityOf(held, microseconds);
  const busiest = KINDS.reduce((most, kind) => (busy[kind] > busy[most] ? kind : most));
  row([
    ...KINDS.map((kind) => `${held[kind].count} × ${held[kind].cpus}`),
    predicted.bottleneck,
    predicted.perSecond.toFixed(0),
    perSecond.toFixed(0),
    (perSecond / predicted.perSecond).toFixed(2),
    `${busiest}, ${(100 * busy[busiest]).toFixed(0)} %`,
    p50Ms.toFixed(1),
  ]);
}

installPrograms(['wrk', 'util-linux']);
progress('starting an engine, making images');
const engine = await startEngine();
try {
  await makeStandIns(engine.docker);
  for (const service of ['core', 'gateway']) await buildImage(engine.docker, service, `animal-store-${service}`);
  await startGround(engine.docker, { redis: nameInDeploy('redis'), postgres: nameInDeploy('postgres') }, SHARDS, CORES);
  const learnt = await measure(LEARNT_FROM);
  process.stdout.write(`${describeMachine()}\n`);
  const costs = ALL.map((kind) => `${kind} ${learnt.microseconds[kind].toFixed(0)}`);
  process.stdout.write(`µs of CPU a request, without limits: ${costs.join(', ')}\n\n`);
  row(['gateways', 'cores', 'shards', 'gives out first', 'predicted/s', 'measured/s', 'ratio', 'busiest', 'p50 ms']);
  for (const held of HELD_AGAINST) tell(held, learnt, await measure(held));
} finally {
  await engine.stop();
}
process.exit(0);
