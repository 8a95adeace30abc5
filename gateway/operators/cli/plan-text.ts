import { FIELD_NAMES, type Plan, valueIn, whenAbsent } from '../../limiter/plans.ts';
import { mostBanAfter } from '../../limiter/refusals.ts';
import type { FieldChange } from '../../stores/audit.ts';
import type { PlanChangeView } from '../api/answers.ts';
import { colour } from './session.ts';
import { harmless, table } from './table.ts';
import { timeText } from './time-text.ts';

/** Describes plans and their changes in words. */

export function describePlans(shown: Readonly<Record<string, Plan>>): string {
  const rows = Object.entries(shown).map(([name, plan]) => [
    name,
    ...FIELD_NAMES.map((field) => valueIn(plan, field) ?? whenAbsent(field)),
  ]);
  return table(['plan', ...FIELD_NAMES], rows);
}

/** Describes each field on one line, with its current and its new value. */
export function describeChanges(changes: readonly FieldChange[], stream: NodeJS.WriteStream): string {
  const width = Math.max(...changes.map(({ field }) => field.length));
  const lines = changes.map(({ field, from = 'none', to = 'none' }) => {
    const [before, after] = [colour('red', harmless(from), stream), colour('green', harmless(to), stream)];
    return `${field.padEnd(width)}  ${before} -> ${after}`;
  });
  return lines.join('\n');
}

export function describeHistory(history: readonly PlanChangeView[]): string {
  const rows = history.map(({ at, author, action, changes, reason }) => [
    timeText(at),
    author,
    action,
    changes.map(({ field, from = 'none', to = 'none' }) => `${field} ${from} -> ${to}`).join(', '),
    reason,
  ]);
  return table(['at', 'author', 'action', 'changes', 'reason'], rows);
}

/** Warns of values that are valid but rarely intended. */
export function warningsOf({ minute, day, ban_after, ban_grace_seconds, mode }: Plan): string[] {
  const warnings: string[] = [];
  if (mode === 'shadow')
    warnings.push('in shadow mode the limits of the plan refuse nothing; they are counted and logged.');
  if (minute !== undefined && day !== undefined && day < minute)
    warnings.push(`the day limit of ${day} requests is lower than the minute limit of ${minute}.`);
  if (ban_after !== undefined && minute !== undefined && ban_after > mostBanAfter(minute))
    warnings.push('ban_after is over eight times the minute limit: bursts once a minute can ban a key.');
  if (ban_grace_seconds === 0)
    warnings.push(
      'without a grace time, a key whose clients respect Retry-After is banned if enough of their requests are refused at once.',
    );
  return warnings;
}
