import type { Family, Series } from '../../shared/counts.ts';
import { DECISION_OUTCOMES, type DecisionOutcome, NO_DECISION_REASONS, type NoDecisionReason } from './outcomes.ts';
import { DECISIONS, NONE, WITHOUT_DECISION } from './traffic.ts';

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

/** What a request is shown as: its decision, or why there was none. */
type Shown = DecisionOutcome | NoDecisionReason;

/** Under which of the totals each falls; none where the request asked for no decision. */
const TOTAL_OF: Readonly<Record<Shown, Total | undefined>> = {
  admitted: 'admitted',
  refused_minute: 'refused',
  refused_day: 'refused',
  banned: 'banned',
  malformed: 'unauthorized',
  unknown: 'unauthorized',
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
  /** By plan, and by outcome as in the metrics; where no plan is known, under `none`. Only what there has been. */
  readonly plans: Readonly<Record<string, Partial<Record<Shown, number>>>>;
}

/** The running totals out of what was counted. */
export function totalsOf(counted: readonly Family[]): TrafficTotals {
  const totals = { admitted: 0, refused: 0, banned: 0, unauthorized: 0, shed: 0, undecided: 0, local: 0 };
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

const seriesOf = (counted: readonly Family[], wanted: string): readonly Series[] =>
  counted.find(({ name }) => name === wanted)?.values ?? [];

const SHOWN: ReadonlySet<string> = new Set([...DECISION_OUTCOMES, ...NO_DECISION_REASONS]);

const isShown = (text: string): text is Shown => SHOWN.has(text);
