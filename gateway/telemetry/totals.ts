import { z } from 'zod';
import type { Family, Series } from '../../shared/process/counts.ts';
import { count } from '../../shared/schemas/answer-parts.ts';
import { DECISION_OUTCOMES, type DecisionOutcome, NO_DECISION_REASONS, type NoDecisionReason } from './outcomes.ts';
import { DECISIONS, NONE, WITHOUT_DECISION } from './request-metrics.ts';

/** Decisions since the start, as the operators' API names them. */
export const Totals = z.object({
  admitted: count,
  /** The request was over the minute or day limit. */
  refused: count,
  banned: count,
  /** The secret lacks the scope. */
  forbidden: count,
  /** The key is invalid, for any reason. */
  unauthorized: count,
  /** Overload refused the request before a decision. */
  shed: count,
  /** No decision was possible. */
  undecided: count,
  /** The number of all these that the gateway decided while Redis was unavailable. */
  local: count,
});
type Totals = z.infer<typeof Totals>;

type Total = keyof Omit<Totals, 'local'>;

/** The decision on a request, or why there was none. */
type Shown = DecisionOutcome | NoDecisionReason;

/** The total to which each belongs; undefined if the request needed no decision. */
const TOTAL_OF: Readonly<Record<Shown, Total | undefined>> = {
  admitted: 'admitted',
  refused_minute: 'refused',
  refused_day: 'refused',
  banned: 'banned',
  malformed: 'unauthorized',
  unknown: 'unauthorized',
  forbidden: 'forbidden',
  elsewhere: 'unauthorized',
  disabled: 'unauthorized',
  expired: 'unauthorized',
  shed: 'shed',
  unavailable: 'undecided',
  unusable: 'undecided',
  reference: undefined,
  own: undefined,
  invalid: undefined,
  failed: undefined,
  left: undefined,
};

export interface TrafficTotals {
  readonly totals: Totals;
  /** By plan, and by outcome as in the metrics. The plan is `none` if it is unknown. Zeros are left out. */
  readonly plans: Readonly<Record<string, Partial<Record<Shown, number>>>>;
}

/** Computes the running totals from the counts. */
export function totalsOf(counted: readonly Family[]): TrafficTotals {
  const totals = { admitted: 0, refused: 0, banned: 0, forbidden: 0, unauthorized: 0, shed: 0, undecided: 0, local: 0 };
  const plans: Record<string, Partial<Record<Shown, number>>> = {};
  for (const { labels, value } of [...seriesOf(counted, DECISIONS), ...seriesOf(counted, WITHOUT_DECISION)]) {
    const { outcome, reason, plan = NONE, mode } = labels;
    const shown = outcome ?? reason ?? '';
    const total = isShown(shown) ? TOTAL_OF[shown] : undefined;
    if (value === 0 || total === undefined) continue;
    totals[total] += value;
    if (mode === 'local') totals.local += value;
    plans[plan] = { ...plans[plan], [shown]: (plans[plan]?.[shown as Shown] ?? 0) + value };
  }
  return { totals, plans };
}

/** The series of a family; none before it is counted. */
export const seriesOf = (counted: readonly Family[], wanted: string): readonly Series[] =>
  counted.find(({ name }) => name === wanted)?.values ?? [];

const SHOWN: ReadonlySet<string> = new Set([...DECISION_OUTCOMES, ...NO_DECISION_REASONS]);

const isShown = (text: string): text is Shown => SHOWN.has(text);

/** A bucket of a histogram: its bound in seconds, and the count up to it. */
export type Bucket = readonly [bound: number, count: number];

/** The buckets of a histogram, over all its labels, ascending. */
export function bucketsOf(counted: readonly Family[], wanted: string): Bucket[] {
  const buckets = new Map<number, number>();
  for (const { metricName, labels, value } of seriesOf(counted, wanted)) {
    if (metricName !== `${wanted}_bucket`) continue;
    const bound = labels.le === '+Inf' ? Infinity : Number(labels.le);
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  return [...buckets];
}

/**
 * Computes a quantile as Prometheus' histogram_quantile does: linear within a bucket, and the last finite bound above
 * it.
 * @returns milliseconds with two decimals; null without a count
 */
export function quantile(buckets: readonly Bucket[], share: number): number | null {
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const rank = share * total;
  const at = buckets.findIndex(([, count]) => count >= rank);
  const [[bound, count], [lower, below]] = [buckets[at] as Bucket, buckets[at - 1] ?? [0, 0]];
  const seconds = bound === Infinity ? lower : lower + ((bound - lower) * (rank - below)) / (count - below);
  return Math.round(seconds * 1e5) / 100;
}
