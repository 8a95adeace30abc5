import type { Family } from '../../shared/counts.ts';
import { DECISIONS, NONE, OUTCOMES, type Outcome } from './traffic.ts';

/** Decisions since the start, in the words of the operators' API. */
export interface Totals {
  readonly admitted: number;
  /** Over the minute's or the day's limit. */
  readonly refused: number;
  readonly banned: number;
  /** No good key, whatever the reason. */
  readonly unauthorized: number;
  /** Turned away before a decision: there was too much to do. */
  readonly shed: number;
  /** No decision could be had. */
  readonly undecided: number;
  /** Of all these, those that were taken in the gateway while Redis was away. */
  readonly local: number;
}

type Total = keyof Omit<Totals, 'local'>;

/** Each outcome, and under which of the totals it falls. */
const TOTAL_OF: Readonly<Record<Outcome, Total>> = {
  undecided: 'undecided',
  admitted: 'admitted',
  refused_minute: 'refused',
  refused_day: 'refused',
  banned: 'banned',
  shed: 'shed',
  malformed: 'unauthorized',
  unknown: 'unauthorized',
  disabled: 'unauthorized',
  expired: 'unauthorized',
};

export interface TrafficTotals {
  readonly totals: Totals;
  /** By plan, and by outcome as in the metrics; where no plan is known, under `none`. Only what there has been. */
  readonly plans: Readonly<Record<string, Partial<Record<Outcome, number>>>>;
}

/** The running totals out of what was counted. */
export function totalsOf(counted: readonly Family[]): TrafficTotals {
  const totals = { admitted: 0, refused: 0, banned: 0, unauthorized: 0, shed: 0, undecided: 0, local: 0 };
  const plans: Record<string, Partial<Record<Outcome, number>>> = {};
  for (const { labels, value } of counted.find(({ name }) => name === DECISIONS)?.values ?? []) {
    const { outcome = '', plan = NONE, mode } = labels;
    if (value === 0 || !isOutcome(outcome)) continue;
    totals[TOTAL_OF[outcome]] += value;
    if (mode === 'local') totals.local += value;
    plans[plan] = { ...plans[plan], [outcome]: (plans[plan]?.[outcome] ?? 0) + value };
  }
  return { totals, plans };
}

const isOutcome = (outcome: string): outcome is Outcome => (OUTCOMES as readonly string[]).includes(outcome);
