/** Unix time in microseconds. Tests inject their own. */
export type Clock = () => number;

export const systemClock: Clock = () => Date.now() * 1_000;
