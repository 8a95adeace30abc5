import type { Spread } from '../../support/statistics.ts';
import type { Row, Summary } from './summary.ts';

/** The results as tables for a terminal. */

interface Column {
  readonly head: string;
  text(row: Row): string;
}

const whole = (value: number): string => Math.round(value).toLocaleString('en');
const fixed = (value: number, digits: number): string => (Number.isNaN(value) ? '–' : value.toFixed(digits));

const spread = (ratio: Spread | undefined): string =>
  ratio === undefined ? '–' : `${ratio.median.toFixed(2)}× (${ratio.low.toFixed(2)}–${ratio.high.toFixed(2)})`;

export const COLUMNS: readonly Column[] = [
  { head: 'requests/s', text: ({ requestsPerSecond }) => whole(requestsPerSecond) },
  { head: 'p50 ms', text: ({ p50Ms }) => fixed(p50Ms, 2) },
  { head: 'p99 ms', text: ({ p99Ms }) => fixed(p99Ms, 2) },
  { head: 'proxy µs', text: ({ proxyCpu }) => fixed(proxyCpu, 1) },
  { head: 'Redis µs', text: ({ redisCpu }) => fixed(redisCpu, 1) },
  { head: 'core µs', text: ({ coreCpu }) => fixed(coreCpu, 1) },
  { head: 'calls/s', text: ({ redisCallsPerSecond }) => whole(redisCallsPerSecond) },
  { head: 'RSS MB', text: ({ residentMegabytes }) => whole(residentMegabytes) },
  { head: 'requests/s ratio', text: ({ ratio }) => spread(ratio) },
  { head: 'CPU ratio', text: ({ cpuRatio }) => spread(cpuRatio) },
  { head: 'rounds', text: ({ rounds }) => String(rounds) },
];

/** One scenario, with a line per contender. */
export function tableOf({ name, title, rows, invalid, rate }: Summary): string {
  const cells = [['', ...COLUMNS.map(({ head }) => head)], ...rows.map((row) => [row.name, ...textsOf(row)])];
  const widths = (cells[0] as string[]).map((_, at) => Math.max(...cells.map((line) => (line[at] as string).length)));
  const lines = cells.map((line) =>
    line
      .map((text, at) => (at === 0 ? text.padEnd(widths[0] as number) : text.padStart(widths[at] as number)))
      .join('  '),
  );
  const at = rate === undefined ? '' : ` (${whole(rate)} requests/s)`;
  const notCounted = invalid.map((fault) => `  not counted: ${fault}`);
  return [`${name} – ${title}${at}`, ...lines, ...notCounted, ''].join('\n');
}

const textsOf = (row: Row): string[] => COLUMNS.map((column) => (row.rounds === 0 ? '–' : column.text(row)));
