import type { Holding, SoakProcess } from './process.ts';
import type { SoakRecord } from './record.ts';

/** One line about the progress of the soak test. */
export function progressLine(record: SoakRecord, holdings: readonly Holding[], event: string): string {
  const counted = (what: string) => record.counted(what);
  const memory = holdings.map(({ megabytes }) => megabytes.toFixed(0)).join('/');
  return (
    `${counted('requests')} requests, ${counted('admitted')} admitted, ${counted('refused')} refused, ` +
    `${counted('errors')} errors, ${record.brokenCount} broken; MB ${memory}; ${event}`
  );
}

/** The final report of a soak test. */
export function summaryTable(
  record: SoakRecord,
  processes: readonly SoakProcess[],
  before: readonly Holding[],
  after: readonly Holding[],
): string {
  const under = (prefix: string, shown: string) =>
    record
      .countedUnder(prefix)
      .sort()
      .map(([name, count]) => [`  ${shown}${name}`, count] as const);
  const counts = [
    'requests',
    'admitted',
    'refused',
    'errors',
    'local decisions',
    'shed',
    'left',
    'failures seen',
    'faults',
  ];
  const rows: (readonly [name: string, value: string | number])[] = [
    ...counts.map((what) => [what, record.counted(what)] as const),
    ...under('status ', ''),
    ...under('error ', 'error, '),
    ['longest stall', `${record.longestMs.toFixed(0)} ms`],
    ...processes.map(({ name }, at) => [name, change(before[at], after[at])] as const),
    ['broken promises', record.brokenCount],
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  return [
    ...rows.map(([name, value]) => `${name.padEnd(width)}  ${value}`),
    ...record.broken.map((text) => `  ${text}`),
  ].join('\n');
}

const change = (before?: Holding, after?: Holding): string =>
  `${before?.megabytes.toFixed(0)} → ${after?.megabytes.toFixed(0)} MB, ` +
  `${before?.fileHandles} → ${after?.fileHandles} file handles`;
