/**
 * The outcomes of a request before the core is asked: a decision, or a reason without one. Each is a label value of a
 * metric.
 */

/** Decisions on a key that has a plan. `forbidden`: its secret is not for such an operation. */
export const ON_PLANS = ['admitted', 'refused_minute', 'refused_day', 'banned', 'forbidden'] as const;

/** Decisions on an invalid key. `elsewhere`: its secret is bound to other networks. */
export const ON_NO_PLAN = ['unknown', 'disabled', 'expired', 'elsewhere'] as const;

export const DECISION_OUTCOMES = [...ON_PLANS, ...ON_NO_PLAN] as const;
export type DecisionOutcome = (typeof DECISION_OUTCOMES)[number];

/**
 * Why there was no decision.
 * - `malformed`: no key, or a malformed one
 * - `shed`: overload
 * - `unavailable`: Redis is unavailable and the key was not seen before
 * - `unusable`: the key's data is corrupt
 * - `reference`: a file that needs no key
 * - `own`: another answer of the gateway itself, such as a key's limit status
 * - `invalid`: the request itself was refused
 * - `failed`: a fault of ours
 * - `left`: the client left first
 */
export const NO_DECISION_REASONS = [
  'malformed',
  'shed',
  'unavailable',
  'unusable',
  'reference',
  'own',
  'invalid',
  'failed',
  'left',
] as const;
export type NoDecisionReason = (typeof NO_DECISION_REASONS)[number];

/** The outcome of a request in the log. Which limit refused it is in its decision. */
export type Outcome = 'admitted' | 'refused' | 'banned' | 'forbidden' | (typeof ON_NO_PLAN)[number] | NoDecisionReason;

const REASONS: ReadonlySet<string> = new Set(NO_DECISION_REASONS);

export const isNoDecision = (outcome: Outcome): outcome is NoDecisionReason => REASONS.has(outcome);
