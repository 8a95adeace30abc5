import { MINUTE, refill } from './bucket.ts';
import { type Bounds, SCOPES } from './credential.ts';
import { type Count, FRESH, type KeyRecord, type KeyState, type StoredLevel } from './key-record.ts';
import type { BucketState, Decision, Verdict } from './limiter.ts';
import type { Plan } from './plans.ts';
import type { Refusals } from './refusals.ts';

/**
 * The store's last decision. `at` is the time at which it arrived on this machine, by the monotonic clock in
 * microseconds. Only such times determine the order of events, because the store's clock may be set back.
 */
export interface StoreReply {
  readonly decision: Decision;
  readonly at: number;
}

/** What the owner of a key may see about the key, apart from its limits. Times are in microseconds. */
export interface KeyFacts {
  readonly name: string;
  readonly expiresAt: number | undefined;
  readonly refusals: Refusals;
  /** Requests by day, oldest first. Days are counted from 1970. */
  readonly days: readonly Count[];
}

/** What one process knows about a key in use. All secrets of the key share this record. */
export class Client {
  readonly id: string;
  /** Whether this record was evicted. Another record of the key may then exist. */
  isEvicted = false;
  lastReply: StoreReply | undefined;
  /** The digests of the secrets that the store accepted, each with the last decision on it. */
  readonly secrets = new Map<string, StoreReply>();
  /** The levels after local decisions; undefined if there were none since the store's last decision. */
  state: KeyState | undefined;
  readonly debt = noDebt();
  /** When this gateway last learned of a change by an operator. Earlier verdicts are not used. */
  changedAt = Number.NEGATIVE_INFINITY;
  facts: { readonly facts: KeyFacts; readonly askedAt: number } | undefined;
  /** Requests with the key that take up capacity in the gateway (overload.ts). */
  inFlight = 0;
  /** The times until which the client's reads are expected to be slow, and its responses large (upstream/call.ts). */
  slowUntil = 0;
  largeUntil = 0;
  largePath = '';
  /** When a request with the key was last decided, and last refused, by the monotonic clock in microseconds. */
  askedAt = Number.NEGATIVE_INFINITY;
  refusedAt = Number.NEGATIVE_INFINITY;
  /** The day, counted from 1970 in UTC, on which each event was last reported; undefined if none was. */
  notifiedOn: { [event: string]: number } | undefined;

  constructor(id: string) {
    this.id = id;
  }
}

/** What one process reports to another about a key. */
export interface KnownKey {
  readonly lastReply: StoreReply;
  readonly changedAt: number;
  readonly secrets: readonly (readonly [digest: string, lastReply: StoreReply])[];
}

export type KnownPage = readonly (readonly [id: string, KnownKey])[];

/** Requests that were decided here and that the store has not charged yet. */
export interface Debt {
  /** Admitted requests, including the spared ones, for which the store takes no token. */
  admitted: number;
  /** How many of the admitted requests, counted from the first, take no token because the key has been reset since. */
  spared: number;
  /**
   * How many tokens to take from the store's minute bucket if it has overflowed in the meantime: at most as many as are
   * missing from the local bucket.
   */
  due: number;
  /** When the store reported the levels from which the first token was taken, by its clock; 0 if none was taken. */
  asOf: number;
  /** Tokens that the store took, in a late reply, for requests that had been refused here by then. */
  returned: number;
  /** Requests admitted without a token, because the plan is in shadow mode. */
  shadowed: number;
  refused: number;
  /** The latest Retry-After moment of the refused requests, by the store's clock; 0 for none. */
  retryAt: number;
}

export const noDebt = (): Debt => ({
  admitted: 0,
  spared: 0,
  due: 0,
  asOf: 0,
  returned: 0,
  shadowed: 0,
  refused: 0,
  retryAt: 0,
});

/** How many tokens a decision took from each bucket. */
export const tokensOf = (verdict: Verdict | undefined): 0 | 1 =>
  verdict?.outcome === 'admitted' && !verdict.isShadowed ? 1 : 0;

/** Adds a local decision. @param asOf when the store reported the levels that it is based on, by its clock */
export function owe(debt: Debt, { outcome, isShadowed, retryAt }: Decision, asOf: number): void {
  const kind = outcome === 'refused' ? outcome : isShadowed ? 'shadowed' : 'admitted';
  debt[kind] += 1;
  if (kind === 'admitted') debt.due += 1;
  if (owedBy(debt) > 0) debt.asOf ||= asOf;
  debt.retryAt = Math.max(debt.retryAt, retryAt ?? 0);
}

/** Notes a token to return. @param asOf when the store took it, by its clock */
export function giveBack(debt: Debt, asOf: number): void {
  debt.returned += 1;
  debt.asOf ||= asOf;
}

export const owedBy = ({ admitted, spared }: Debt): number => admitted - spared;

/** Forgives the tokens owed so far, because the key was reset. The requests still count as usage. */
export function spare(debt: Debt): void {
  debt.spared = debt.admitted;
  debt.returned = 0;
  debt.due = 0;
  debt.asOf = 0;
}

/**
 * Subtracts the charged part of a debt, which is always the oldest part.
 * @returns whether the debt is settled
 */
export function settled(debt: Debt, charged: Debt): boolean {
  for (const kind of ['admitted', 'shadowed', 'refused'] as const) debt[kind] -= charged[kind];
  debt.returned = Math.max(0, debt.returned - charged.returned);
  debt.spared = Math.max(0, debt.spared - charged.admitted);
  debt.due = Math.max(0, debt.due - charged.due);
  if (owedBy(debt) + debt.returned === 0) debt.asOf = 0;
  if (debt.retryAt === charged.retryAt) debt.retryAt = 0;
  return debt.admitted + debt.shadowed + debt.refused + debt.returned === 0;
}

/** Reduces `due` to the tokens that are missing from the local minute bucket. @param now by the store's clock */
export function refillDue(debt: Debt, { minute, asOf }: KeyState, limit: number, now: number): void {
  const capacity = Math.min(minute.limit ?? limit, limit);
  const { tokens } = refill(minute, capacity, MINUTE, Math.max(0, now - (asOf ?? now)));
  debt.due = Math.min(debt.due, capacity - tokens);
}

/** The state minus the tokens owed. The minute bucket can go down to minus its limit, the day bucket to zero. */
export function debited(state: KeyState, debt: Debt): KeyState {
  return { ...state, minute: lowered(state.minute, debt.due, -1), day: lowered(state.day, owedBy(debt), 0) };
}

/** Lowers a level, but not below the floor (0 or minus the limit). A level already below it does not change. */
function lowered(level: StoredLevel, owed: number, floor: -1 | 0): StoredLevel {
  const least = floor * (level.limit ?? 0);
  if (level.tokens - owed >= least) return { ...level, tokens: level.tokens - owed };
  return level.tokens < least ? level : { ...level, tokens: least, fraction: 0 };
}

const UNBOUND: Bounds = { scope: SCOPES, networks: [] };

/** The levels that a decision of the store reports. */
export const stateAfter = ({ now, buckets: [minute, day], bannedUntil, isBannedByOperator }: Decision): KeyState => ({
  ...FRESH,
  minute: minute as BucketState,
  day: day as BucketState,
  asOf: now,
  bannedUntil,
  banReason: isBannedByOperator ? { text: '', until: bannedUntil } : undefined,
});

/**
 * The record of a key, with only the presented secret. If the plan has no limit, the last limit that the store reported
 * applies.
 */
export const recordOf = (
  { plan, buckets, own }: Decision,
  limits: Plan,
  digest: string,
  bounds = UNBOUND,
): KeyRecord => ({
  plan,
  name: '',
  secrets: [{ id: '', name: '', digest, createdAt: 0, ...bounds }],
  createdAt: 0,
  minute: own.minute || limits.minute === undefined ? buckets[0]?.limit : undefined,
  day: own.day || limits.day === undefined ? buckets[1]?.limit : undefined,
});
