/** The outcomes before a request is forwarded: a decision, or a reason without one. Each is a label value. */

/** Decisions on a key that has a plan. `forbidden` means that its secret lacks the scope. */
export const ON_PLANS = ['admitted', 'refused_minute', 'refused_day', 'banned', 'forbidden'] as const;

/** Decisions on an invalid key. `elsewhere` means that its secret is bound to other networks. */
export const ON_NO_PLAN = ['unknown', 'disabled', 'expired', 'elsewhere'] as const;

export const DECISION_OUTCOMES = [...ON_PLANS, ...ON_NO_PLAN] as const;
export type DecisionOutcome = (typeof DECISION_OUTCOMES)[number];

/**
 * Why there was no decision.
 * - `malformed`: the key is missing or malformed
 * - `shed`: the gateway is overloaded
 * - `unavailable`: Redis is unavailable and the key has not been seen before
 * - `unusable`: the key's data is corrupt
 * - `reference`: the file needs no key
 * - `own`: the gateway itself has the answer, such as a key's limit status
 * - `invalid`: the request itself was refused
 * - `failed`: the gateway failed
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

/** The outcome of a request in the log. Its decision shows which limit refused it. */
export type Outcome = 'admitted' | 'refused' | 'banned' | 'forbidden' | (typeof ON_NO_PLAN)[number] | NoDecisionReason;

const REASONS: ReadonlySet<string> = new Set(NO_DECISION_REASONS);

export const isNoDecision = (outcome: Outcome): outcome is NoDecisionReason => REASONS.has(outcome);
