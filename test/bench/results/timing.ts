import { median } from '../../support/statistics.ts';

/** A test of the programs sets one round, because it does not read the times. */
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 15);
const CALLS = 20_000;

/** µs per call of each function, in interleaved rounds: the median, with minimum and maximum in brackets. */
export function timeEach(steps: Readonly<Record<string, () => unknown>>): Map<string, string> {
  const times = new Map<string, number[]>(Object.keys(steps).map((name) => [name, []]));
  for (let round = 0; round < ROUNDS; round++)
    for (const [name, run] of Object.entries(steps)) times.get(name)?.push(microseconds(run));
  return new Map([...times].map(([name, values]) => [name, summary(values)]));
}

function microseconds(run: () => unknown): number {
  const start = performance.now();
  for (let call = 0; call < CALLS; call++) run();
  return ((performance.now() - start) * 1_000) / CALLS;
}

function summary(values: number[]): string {
  const [low, mid, high] = [Math.min(...values), median(values), Math.max(...values)];
  return `${mid.toFixed(2)} µs (${low.toFixed(2)}–${high.toFixed(2)})`;
}
