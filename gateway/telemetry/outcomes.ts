/** What can become of a request before the core is asked: it is decided on, or it is not. Each is a value of a metric's label. */

/** Decisions on a key that has a plan. */
export const ON_PLANS = ['admitted', 'refused_minute', 'refused_day', 'banned'] as const;

/** Decisions on a key that opens nothing. */
export const ON_NO_PLAN = ['unknown', 'disabled', 'expired'] as const;

export const DECISION_OUTCOMES = [...ON_PLANS, ...ON_NO_PLAN] as const;
export type DecisionOutcome = (typeof DECISION_OUTCOMES)[number];

/**
 * Why there was no decision. `malformed`: no key, or one that is none by its form; `shed`: too much to do; `unavailable`:
 * Redis is away, and the key was not seen before; `unusable`: the key's data are no key's; `reference`: a file that needs no
 * key; `own`: another answer of the gateway's own, as to where a key stands; `invalid`: refused for what it is; `failed`: a fault of ours; `left`: the client went away before.
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

/** What a request says of itself in the log; which limit refused it stands in its decision. */
export type Outcome = 'admitted' | 'refused' | 'banned' | (typeof ON_NO_PLAN)[number] | NoDecisionReason;

const REASONS: ReadonlySet<string> = new Set(NO_DECISION_REASONS);

export const isNoDecision = (outcome: Outcome): outcome is NoDecisionReason => REASONS.has(outcome);
