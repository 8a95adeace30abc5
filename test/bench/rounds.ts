import { truncateSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { median } from '../support/statistics.ts';
import type { Contender, ContenderName } from './contenders.ts';
import { listsOf } from './load/asks.ts';
import { type LoadResult, runOpenLoop, runWrk } from './load/load.ts';
import { usageOf } from './machine/usage.ts';
import { leadInSeconds, type PlannedScenario, takingPart } from './plan.ts';
import type { Scenario } from './scenarios.ts';
import { type Stage, scriptCalls } from './setup/stage.ts';

/** The results of one round of one contender. CPU time is in µs per request. */
export interface Sample {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly proxyCpu: number;
  readonly redisCpu: number;
  readonly coreCpu: number;
  /** Scripts that Redis ran per second. */
  readonly redisCallsPerSecond: number;
  /** The proxy's memory at the end of the round. */
  readonly residentMegabytes: number;
}

/** The samples of each contender by round; undefined if it did not take part or the round was invalid. */
type Samples = Map<ContenderName, (Sample | undefined)[]>;

export interface Measured {
  readonly scenario: Scenario;
  readonly samples: Samples;
  readonly invalid: readonly string[];
  /** Requests sent per second, if the rate was fixed. */
  readonly rate?: number | undefined;
}

interface Measuring {
  readonly stage: Stage;
  readonly part: PlannedScenario;
  readonly contenders: ReadonlyMap<ContenderName, Contender>;
  readonly seconds: number;
  /** The maximum rate of the first contender, if it is known. */
  readonly capacity?: number | undefined;
  print(progress: string): void;
}

const SETTLE_MS = 100;
/** The warm-up before each scenario. */
const WARM_UP_SECONDS = 1;

/** Runs before any measurement, because just-in-time compilation takes a while. */
export async function warmUp({ url, keys }: Contender, seconds: number): Promise<void> {
  await runWrk({ url, connections: 32, seconds, asks: listsOf([keys.hot]) });
}

/**
 * Runs many short rounds in turn, so that other load on the machine affects all contenders alike and the results of one
 * round can be compared. Each round starts with a different contender. A warm-up round before the first is not
 * measured.
 */
export async function measure(measuring: Measuring): Promise<Measured> {
  const { stage, part, contenders, seconds, print } = measuring;
  const { scenario, rounds } = part;
  const samples: Samples = new Map(part.contenders.map((name) => [name, []]));
  const invalid: string[] = [];
  const contender = (name: ContenderName) => contenders.get(name) as Contender;
  for (const name of part.contenders) await load(contender(name), scenario, WARM_UP_SECONDS, undefined);
  const rate = scenario.halfOf ? await halfOfCapacity(measuring) : undefined;

  for (let round = 0; round < rounds; round++) {
    const names = takingPart(part, round);
    for (let turn = 0; turn < names.length; turn++) {
      const name = names[(turn + round) % names.length] as ContenderName;
      const { sample, result } = await sampleOf(contender(name), scenario, seconds, stage, rate);
      const fault = faultOf(result, scenario);
      const outcome = fault ?? `${Math.round(sample.requestsPerSecond)}/s`;
      print(`${scenario.name} ${round + 1}/${rounds} ${name} ${outcome}`);
      if (fault === undefined) (samples.get(name) as (Sample | undefined)[])[round] = sample;
      else invalid.push(`${name}, round ${round + 1}: ${fault}`);
    }
  }
  return { scenario, samples, invalid, rate };
}

async function halfOfCapacity({ part, contenders, seconds, capacity }: Measuring): Promise<number> {
  const first = contenders.get(part.contenders[0] as ContenderName) as Contender;
  const known = capacity ?? perSecond(await load(first, part.scenario, seconds, undefined));
  return Math.round(known / 2);
}

async function sampleOf(
  contender: Contender,
  scenario: Scenario,
  seconds: number,
  stage: Stage,
  rate: number | undefined,
): Promise<{ sample: Sample; result: LoadResult }> {
  const lead = leadInSeconds(scenario);
  if (lead > 0) await load(contender, scenario, lead, undefined);
  truncateSync(contender.log);
  await sleep(SETTLE_MS);
  const pids = [contender.pid, stage.redis.pid, stage.core.pid];
  const cpu = () => pids.map((pid) => (pid === undefined ? 0 : usageOf(pid).cpuMicroseconds));
  const callsBefore = await scriptCalls(stage.client);
  const before = cpu();
  const result = await load(contender, scenario, seconds, rate);
  const after = cpu();
  const calls = (await scriptCalls(stage.client)) - callsBefore;
  const [proxyCpu = 0, redisCpu = 0, coreCpu = 0] = after.map(
    (total, at) => (total - (before[at] as number)) / result.requests,
  );
  const sample = {
    requestsPerSecond: perSecond(result),
    p50Ms: result.p50Ms,
    p99Ms: result.p99Ms,
    proxyCpu,
    redisCpu,
    coreCpu,
    redisCallsPerSecond: calls / result.seconds,
    residentMegabytes: contender.pid === undefined ? 0 : usageOf(contender.pid).residentMegabytes,
  };
  return { sample, result };
}

async function load(contender: Contender, scenario: Scenario, seconds: number, rate: number | undefined) {
  const wanted = { url: contender.url, connections: scenario.connections, seconds, asks: scenario.asks(contender) };
  return rate === undefined ? await runWrk(wanted) : await runOpenLoop(wanted, rate);
}

/** The reason why a round is invalid, if it is. */
function faultOf({ requests, refused, failures }: LoadResult, { refused: share }: Scenario): string | undefined {
  if (requests === 0) return 'no responses';
  if (failures > 0) return `${failures} requests without a response`;
  // A key over its limit is admitted once a minute, and the share of refusals in a random mix varies.
  const isClose = share === 0 ? refused === 0 : Math.abs(refused / requests - share) < (share < 1 ? 0.02 : 0.01);
  if (!isClose) return `${refused} of ${requests} refused`;
  return undefined;
}

const perSecond = ({ requests, seconds }: LoadResult): number => requests / seconds;

/** The median of one figure over the valid rounds. */
export function medianOf(samples: readonly (Sample | undefined)[], figure: (sample: Sample) => number): number {
  return median(samples.filter((sample) => sample !== undefined).map(figure));
}
