import { refill } from './bucket.ts';
import { MINUTE } from './clock.ts';
import type { KeyState, StoredLevel } from './key-record.ts';
import type { Decision } from './limiter.ts';

/** Requests that were decided here and that the store has not charged yet. */
export interface Debt {
  /** Admitted requests. The store takes a token for each, unless it is spared. */
  admitted: number;
  /** How many of the admitted requests, counted from the first, take no token because the key has been reset since. */
  spared: number;
  /**
   * How many tokens the minute bucket still owes if the store's own has run over meanwhile: fewer than were taken once
   * it would have been full again.
   */
  due: number;
  /** The time of the levels from which the first token was taken, by the store's clock; 0 for none. */
  asOf: number;
  /** Requests admitted without a token, because the plan is in shadow mode. */
  shadowed: number;
  refused: number;
  /** The latest Retry-After moment of the refused requests, by the store's clock; 0 for none. */
  retryAt: number;
}

export const noDebt = (): Debt => ({ admitted: 0, spared: 0, due: 0, asOf: 0, shadowed: 0, refused: 0, retryAt: 0 });

/** Adds a local decision. @param asOf the time of the levels from which it was taken, by the store's clock */
export function owe(debt: Debt, { outcome, isShadowed, retryAt }: Decision, asOf: number): void {
  const kind = outcome === 'refused' ? outcome : isShadowed ? 'shadowed' : 'admitted';
  debt[kind] += 1;
  if (kind === 'admitted') debt.due += 1;
  if (owedBy(debt) > 0) debt.asOf ||= asOf;
  debt.retryAt = Math.max(debt.retryAt, retryAt ?? 0);
}

export const owedBy = ({ admitted, spared }: Debt): number => admitted - spared;

/** Forgives the tokens owed so far, because the key was reset. The requests still count as usage. */
export function spare(debt: Debt): void {
  debt.spared = debt.admitted;
  debt.due = 0;
  debt.asOf = 0;
}

/**
 * Subtracts what was charged, which is the oldest part.
 * @returns whether nothing is left
 */
export function settled(debt: Debt, charged: Debt): boolean {
  for (const kind of ['admitted', 'shadowed', 'refused'] as const) debt[kind] -= charged[kind];
  debt.spared = Math.max(0, debt.spared - charged.admitted);
  debt.due = Math.max(0, debt.due - charged.due);
  if (owedBy(debt) === 0) debt.asOf = 0;
  if (debt.retryAt === charged.retryAt) debt.retryAt = 0;
  return debt.admitted + debt.shadowed + debt.refused === 0;
}

/** Forgets what the minute bucket has refilled since, as far as it would have run over. @param now by the store's clock */
export function refillDue(debt: Debt, { minute, asOf }: KeyState, limit: number, now: number): void {
  const capacity = Math.min(minute.limit ?? limit, limit);
  const { tokens } = refill(minute, capacity, MINUTE, Math.max(0, now - (asOf ?? now)));
  debt.due = Math.min(debt.due, capacity - tokens);
}

/** A state minus the tokens owed. The minute bucket goes to at most one capacity below zero, the day bucket to zero. */
export function debited(state: KeyState, debt: Debt): KeyState {
  return { ...state, minute: lowered(state.minute, debt.due, -1), day: lowered(state.day, owedBy(debt), 0) };
}

/** Lowers a level, but not below the floor (in capacities). A level below the floor stays as it is. */
function lowered(level: StoredLevel, owed: number, floor: -1 | 0): StoredLevel {
  const least = floor * (level.limit ?? 0);
  if (level.tokens - owed >= least) return { ...level, tokens: level.tokens - owed };
  return level.tokens < least ? level : { ...level, tokens: least, fraction: 0 };
}
