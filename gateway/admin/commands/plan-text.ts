import type { FieldChange } from '../../access/plan-history.ts';
import { PLAN_FIELDS, type Plan } from '../../access/plans.ts';
import { harmless, table } from '../table.ts';
import { colour } from './session.ts';

/** Plans and their changes in words. */

/** A record of the history as the admin API describes it. */
export interface HistoryEntry {
  readonly id: string;
  readonly at: string;
  readonly author: string;
  readonly action: string;
  readonly reason: string;
  readonly changes: readonly FieldChange[];
}

export function describePlans(shown: Readonly<Record<string, Plan>>): string {
  const rows = Object.entries(shown).map(([name, plan]) => [
    name,
    ...PLAN_FIELDS.map((field) => plan[field]),
    plan.mode ?? 'enforce',
  ]);
  return table(['plan', ...PLAN_FIELDS, 'mode'], rows);
}

/** A line for each field: what it is, what it becomes. */
export function describeChanges(changes: readonly FieldChange[], stream: NodeJS.WriteStream): string {
  const width = Math.max(...changes.map(({ field }) => field.length));
  const lines = changes.map(({ field, from = 'none', to = 'none' }) => {
    const [before, after] = [colour('red', harmless(from), stream), colour('green', harmless(to), stream)];
    return `${field.padEnd(width)}  ${before} -> ${after}`;
  });
  return lines.join('\n');
}

export function describeHistory(history: readonly HistoryEntry[]): string {
  const rows = history.map(({ at, author, action, changes, reason }) => [
    at,
    author,
    action,
    changes.map(({ field, from = 'none', to = 'none' }) => `${field} ${from} -> ${to}`).join(', '),
    reason,
  ]);
  return table(['at', 'author', 'action', 'changes', 'reason'], rows);
}

/** What is allowed and yet seldom meant. */
export function warningsOf({ minute, day, ban_after, mode }: Plan): string[] {
  const warnings: string[] = [];
  if (mode === 'shadow')
    warnings.push('in shadow mode the limits of the plan refuse nothing; they are counted and logged.');
  if (minute !== undefined && day !== undefined && day < minute)
    warnings.push(`the day allows ${day} requests, fewer than the ${minute} of a single minute.`);
  // Without a minute limit of the plan, ban_after is for each 1,000 requests a minute of a key's own.
  const most = minute ?? 1_000;
  if (ban_after !== undefined && ban_after < most)
    warnings.push(
      `clients that share a key can be banned though they wait for Retry-After, unless ban_after is at least ${most}.`,
    );
  return warnings;
}
