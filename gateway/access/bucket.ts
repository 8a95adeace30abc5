/**
 * Token buckets in exact integers. A bucket of `limit` tokens refills continuously, `limit` tokens per `window` ticks. Its
 * level is whole `tokens` and `parts` of the next one, a part being 1/window of a token: so one tick brings exactly `limit`
 * parts, and no decision ever rounds, for limits up to 10^9 and windows up to 8.64×10^10 ticks (a day in microseconds).
 */

export interface Level {
  readonly tokens: number;
  readonly parts: number;
}

export const full = (limit: number): Level => ({ tokens: limit, parts: 0 });

/** The level after `elapsed` ticks. A level above the limit, from before the limit was cut, is clamped to it. */
export function refill(level: Level, limit: number, window: number, elapsed: number): Level {
  if (elapsed >= window) return full(limit);
  const [more, rest] = multiplyDivide(elapsed, limit, window);
  const parts = level.parts + rest;
  const carry = parts >= window ? 1 : 0;
  const tokens = level.tokens + more + carry;
  return tokens >= limit ? full(limit) : { tokens, parts: parts - carry * window };
}

/** Ticks until the bucket holds a whole token; 0 when it does. A level below zero is a debt. */
export function ticksUntilToken(level: Level, limit: number, window: number): number {
  return level.tokens >= 1 ? 0 : Math.ceil(((1 - level.tokens) * window - level.parts) / limit);
}

/** Ticks until the bucket holds as many tokens, or is full. */
export function ticksUntil(wanted: number, level: Level, limit: number, window: number): number {
  const missing = Math.min(wanted, limit) - level.tokens;
  if (missing <= 0) return 0;
  const [ticks, rest] = multiplyDivide(window, missing, limit);
  return ticks + Math.ceil((rest - level.parts) / limit);
}

/** Ticks until one token more than now is there; 0 when the bucket is full. */
export function ticksUntilNextToken(level: Level, limit: number, window: number): number {
  return level.tokens >= limit ? 0 : Math.ceil((window - level.parts) / limit);
}

/** Ticks until the bucket is full. */
export function ticksUntilFull(level: Level, limit: number, window: number): number {
  const [ticks, rest] = multiplyDivide(window, limit - level.tokens, limit);
  return ticks + Math.ceil((rest - level.parts) / limit);
}

const HALF = 32_768;

/**
 * a × b ÷ c as quotient and remainder. The product can pass 2^53, so b is taken in two halves of at most 15 bits, each of
 * whose products stays below it.
 */
function multiplyDivide(a: number, b: number, c: number): [quotient: number, remainder: number] {
  const high = a * Math.floor(b / HALF);
  const rest = (high % c) * HALF + a * (b % HALF);
  return [Math.floor(high / c) * HALF + Math.floor(rest / c), rest % c];
}
