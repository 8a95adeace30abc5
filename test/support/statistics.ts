/** The interpolated quantile of the values, or NaN for an empty list. @param share 0.99 for the 99th percentile */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (sorted.length - 1) * share;
  const below = sorted[Math.floor(at)] ?? Number.NaN;
  const above = sorted[Math.ceil(at)] ?? Number.NaN;
  return below + (above - below) * (at - Math.floor(at));
}

export const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

export const median = (values: readonly number[]): number => quantile(values, 0.5);

/** The median and the quartiles around it. */
export const spreadOf = (values: readonly number[]) => ({
  median: median(values),
  low: quantile(values, 0.25),
  high: quantile(values, 0.75),
});

export type Spread = ReturnType<typeof spreadOf>;
