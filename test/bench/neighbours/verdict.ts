import { sum } from '../../support/statistics.ts';
import type { Measured } from './measure.ts';
import type { Row } from './rows.ts';

/** Compares the measurements of each row with the requirements. */

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

export const listed = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .map(([what, count]) => `${count.toLocaleString('en')} × ${what}`)
    .join(', ');
