/** Times and durations are in microseconds (Unix time), unless a name says otherwise. */
export const MILLISECOND = 1_000;
export const SECOND = 1_000 * MILLISECOND;
export const MINUTE = 60 * SECOND;
export const DAY = 86_400 * SECOND;

/** Unix time in microseconds. Tests inject their own. */
export type Clock = () => number;

export const systemClock: Clock = () => Date.now() * 1_000;

/** Microseconds that never go back, for ages within one process. */
export const monotonicClock: Clock = () => Math.floor(performance.now() * 1_000);
