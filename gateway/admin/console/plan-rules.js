/** What plans hold and what a limit may be: the rules that the gateway checks by, so that a slip is told while it is typed. */

export const PLANS = ['free', 'pro', 'business', 'enterprise'];

export const PLAN_FIELDS = [
  { name: 'minute', label: 'Requests a minute' },
  { name: 'day', label: 'Requests a day' },
  { name: 'ban_after', label: 'Ban after early requests' },
  { name: 'ban_within_seconds', label: 'within seconds' },
  { name: 'ban_seconds', label: 'Ban for seconds' },
  // Where none is said, limits are enforced.
  { name: 'mode', label: 'Mode', options: ['enforce', 'shadow'], otherwise: 'enforce' },
];

const MAX_LIMIT = 1_000_000_000;

/** What is wrong with a limit as it was typed, in the gateway's words; undefined when nothing is. A choice is never wrong. */
export function faultOfValue(name, text) {
  const isLimit = /^\d{1,10}$/.test(text) && Number(text) >= 1 && Number(text) <= MAX_LIMIT;
  return isLimit || isChoice(name) ? undefined : `${name} must be a whole number from 1 to ${MAX_LIMIT}`;
}

/** As the gateway takes it. */
export const toValue = (name, text) => (isChoice(name) ? text : Number(text));

const isChoice = (name) => PLAN_FIELDS.some((field) => field.name === name && field.options !== undefined);
