import { sum } from '../../support/statistics.ts';
import type { Table } from '../results/data.ts';
import type { Measured } from './measure.ts';
import type { Row } from './rows.ts';

/** Compares the measurements of each row with the requirements, and shows them as a table. */

/** The p99 may be at most this many times that of the client alone, plus this many milliseconds. */
const P99_TIMES = 2;
const P99_MORE_MS = 5;
/** The only failure that the machine may have caused. */
export const LATE = 'p99';
/** The memory that a neighbour may cost: for connections, and for a heap that grows with the load up to a bound. */
const MOST_MORE_MEGABYTES = 100;

/** The reasons why a row fails; empty if it passes. */
export function faultsOf(row: Row, measured: Measured, aloneP99Ms: number): string[] {
  const { errors, p99Ms, local, residentMegabytes } = measured;
  const count = sum(Object.values(errors));
  const isLate = p99Ms > P99_TIMES * aloneP99Ms + P99_MORE_MS && row.isLateByNature !== true;
  const more = residentMegabytes.peak - residentMegabytes.begin;
  const isIdle = row.neighbour !== undefined && sum(Object.values(measured.neighbour)) === 0;
  return [
    ...(isIdle ? ['the neighbour was idle'] : []),
    ...(count > 0 ? [`errors: ${listed(errors)}`] : []),
    ...(isLate ? [LATE] : []),
    ...(local > 0 ? [`${local} local decisions`] : []),
    ...(more > MOST_MORE_MEGABYTES ? ['memory'] : []),
  ];
}

const listed = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .map(([what, count]) => `${count.toLocaleString('en')} × ${what}`)
    .join(', ');

export interface Judged {
  readonly row: Row;
  readonly measured: Measured;
  readonly faults: readonly string[];
  /** The p99 compared with that of the client alone. */
  readonly ratio: number;
}

interface Column {
  readonly head: string;
  text(judged: Judged): string;
}

const milliseconds = (value: number): string => value.toFixed(value < 10 ? 1 : 0);

const COLUMNS: readonly Column[] = [
  { head: 'beside', text: ({ row }) => row.title },
  { head: 'p50 ms', text: ({ measured }) => milliseconds(measured.p50Ms) },
  { head: 'p99 ms', text: ({ measured }) => milliseconds(measured.p99Ms) },
  { head: 'max ms', text: ({ measured }) => milliseconds(measured.maxMs) },
  { head: 'p99 vs alone', text: ({ ratio }) => `${ratio.toFixed(1)}×` },
  { head: 'errors', text: ({ measured }) => String(sum(Object.values(measured.errors))) },
  { head: 'RSS begin, peak, end MB', text: ({ measured }) => memoryOf(measured) },
  { head: 'CPU', text: ({ measured }) => `${Math.round(100 * measured.cpu)} %` },
  { head: 'the neighbour got', text: ({ measured }) => listed(measured.neighbour) || '–' },
  { head: 'verdict', text: ({ faults, measured }) => (faults.join('; ') || 'ok') + triesOf(measured) },
];

const memoryOf = ({ residentMegabytes: { begin, peak, end } }: Measured): string =>
  [begin, peak, end].map(Math.round).join(', ');

const triesOf = ({ tries }: Measured): string => (tries > 1 ? ` (${tries} tries)` : '');

export const tableOf = (judged: readonly Judged[]): Table => [
  COLUMNS.map(({ head }) => head),
  ...judged.map((one) => COLUMNS.map((column) => column.text(one))),
];
