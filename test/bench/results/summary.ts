import { type Spread, spreadOf } from '../../support/statistics.ts';
import type { ContenderName } from '../contenders.ts';
import { type Measured, medianOf, type Sample } from '../rounds.ts';

/** One contender in one scenario: medians over its rounds, and its ratios to the baseline. */
export interface Row extends Sample {
  readonly name: ContenderName;
  readonly rounds: number;
  /** Requests per second, and CPU of proxy and Redis together, relative to the baseline in the same round. */
  readonly ratio: Spread | undefined;
  readonly cpuRatio: Spread | undefined;
}

export interface Summary {
  readonly name: string;
  readonly title: string;
  readonly rows: readonly Row[];
  readonly invalid: readonly string[];
  readonly rate: number | undefined;
}

export function summarize({ scenario, samples, invalid, rate }: Measured, baselineName: ContenderName): Summary {
  const baseline = samples.get(baselineName) ?? [];
  const rows = [...samples].map(([name, own]): Row => {
    const figure = (of: (sample: Sample) => number) => medianOf(own, of);
    return {
      name,
      rounds: own.filter((sample) => sample !== undefined).length,
      requestsPerSecond: figure((sample) => sample.requestsPerSecond),
      p50Ms: figure((sample) => sample.p50Ms),
      p99Ms: figure((sample) => sample.p99Ms),
      proxyCpu: figure((sample) => sample.proxyCpu),
      redisCpu: figure((sample) => sample.redisCpu),
      coreCpu: figure((sample) => sample.coreCpu),
      redisCallsPerSecond: figure((sample) => sample.redisCallsPerSecond),
      residentMegabytes: figure((sample) => sample.residentMegabytes),
      ratio: against(own, baseline, (sample) => sample.requestsPerSecond),
      cpuRatio: name === 'core' ? undefined : against(own, baseline, (sample) => sample.proxyCpu + sample.redisCpu),
    };
  });
  return { name: scenario.name, title: scenario.title, rows, invalid, rate };
}

/** Rounds are paired in time: each is compared with the baseline in the same round. */
function against(
  own: readonly (Sample | undefined)[],
  baseline: readonly (Sample | undefined)[],
  figure: (sample: Sample) => number,
): Spread | undefined {
  const ratios = own.flatMap((sample, round) => {
    const other = baseline[round];
    return sample === undefined || other === undefined ? [] : [figure(sample) / figure(other)];
  });
  return ratios.length === 0 ? undefined : spreadOf(ratios);
}
