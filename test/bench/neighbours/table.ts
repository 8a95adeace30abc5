import { sum } from '../../support/statistics.ts';
import type { Table } from '../results/data.ts';
import type { Measured } from './measure.ts';
import type { Row } from './rows.ts';
import { listed } from './verdict.ts';

/** The result as a table. */

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
