/** Times and durations are in microseconds (Unix time), unless a name says otherwise. */
export const MILLISECOND = 1_000;
export const SECOND = 1_000 * MILLISECOND;
export const MINUTE = 60 * SECOND;
export const DAY = 86_400 * SECOND;

/** Unix time in microseconds. Tests inject their own. */
export type Clock = () => number;

export const systemClock: Clock = () => Date.now() * 1_000;

/**
 * The offset between `process.hrtime`, which is the same clock in every process on a machine, and
 * `performance.now()`, which counts from the start of its own process. It appears too small if the process is suspended
 * between the two calls, so the largest of several differences counts.
 */
const BEGAN = Math.max(...Array.from({ length: 20 }, offset));

function offset(): number {
  return Number(process.hrtime.bigint() / 1_000n) - performance.now() * 1_000;
}

/** A monotonic clock in microseconds, for ages and for the order of events on one machine. */
export const monotonicClock: Clock = () => Math.floor(BEGAN + performance.now() * 1_000);

/**
 * Token buckets in exact integers. A bucket refills continuously with `limit` tokens per `window` ticks. Its level is
 * whole `tokens` plus a `fraction`, counted in 1/window of a token. One tick adds exactly `limit` to the fraction, so
 * no decision rounds. This holds for limits up to 10^9 and windows up to 8.64×10^10 ticks (a day in microseconds).
 */

export interface Level {
  readonly tokens: number;
  readonly fraction: number;
}

export const full = (limit: number): Level => ({ tokens: limit, fraction: 0 });

/**
 * The level after `elapsed` ticks. If the limit was lowered, the level is clamped to it. A level below zero is a debt
 * of at most the limit, so a lowered limit also reduces the debt.
 */
export function refill(from: Level, limit: number, window: number, elapsed: number): Level {
  if (elapsed >= (from.tokens < 0 ? 2 * window : window)) return full(limit);
  const level = from.tokens < -limit ? { tokens: -limit, fraction: 0 } : from;
  const [more, rest] = multiplyDivide(elapsed, limit, window);
  const fraction = level.fraction + rest;
  const carry = fraction >= window ? 1 : 0;
  const tokens = level.tokens + more + carry;
  return tokens >= limit ? full(limit) : { tokens, fraction: fraction - carry * window };
}

/** A key is near its limit if at most a fifth is left. */
export const LEFT_PARTS = 5;

export const isNear = ({ limit, tokens }: { readonly limit: number; readonly tokens: number }): boolean =>
  tokens * LEFT_PARTS <= limit;

const LEVEL = /^(-?)(\d{1,10})\.?(\d{0,12})\/?(\d*)$/;

/**
 * Reads `59.50000000/60`, as decide.lua writes a level: the tokens, which can be below zero, and the limit.
 * @returns undefined if the string is unreadable
 */
export function readLevel(text: string, window: number): (Level & { readonly limit: number }) | undefined {
  const [, sign, whole, decimals = '', last = ''] = LEVEL.exec(text) ?? [];
  if (whole === undefined) return undefined;
  const [tokens, limit] = [Number(whole), Number(last)];
  const fraction = Math.floor(Number(`0.${decimals}`) * window + 0.5);
  if (sign !== '-') return { tokens, fraction, limit };
  return fraction === 0
    ? { tokens: -tokens, fraction, limit }
    : { tokens: -tokens - 1, fraction: window - fraction, limit };
}

/** Ticks until the bucket holds a whole token. 0 if it already does. */
export const ticksUntilToken = (level: Level, limit: number, window: number): number =>
  ticksUntil(1, level, limit, window);

/** Ticks until the bucket holds `wanted` tokens, or is full. */
export function ticksUntil(wanted: number, level: Level, limit: number, window: number): number {
  const missing = Math.min(wanted, limit) - level.tokens;
  if (missing <= 0) return 0;
  const [ticks, rest] = multiplyDivide(window, missing, limit);
  return ticks + Math.ceil((rest - level.fraction) / limit);
}

/** Ticks until the bucket holds one more token than it does now. 0 if it is full. */
export const ticksUntilNextToken = (level: Level, limit: number, window: number): number =>
  ticksUntil(level.tokens + 1, level, limit, window);

export const ticksUntilFull = (level: Level, limit: number, window: number): number =>
  ticksUntil(limit, level, limit, window);

const HALF = 32_768;

/**
 * a × b ÷ c as quotient and remainder. The product can exceed 2^53. Therefore b is split into two halves of at most 15
 * bits, and each partial product stays below 2^53.
 */
function multiplyDivide(a: number, b: number, c: number): [quotient: number, remainder: number] {
  const high = a * Math.floor(b / HALF);
  const rest = (high % c) * HALF + a * (b % HALF);
  return [Math.floor(high / c) * HALF + Math.floor(rest / c), rest % c];
}
