/**
 * Judges a limiter only by what its clients saw, without its code, buckets, clock or headers. Each request is an
 * interval in which its decision was made. All times are milliseconds on the same clock.
 */
export interface Observed {
  readonly key: string;
  readonly sentAt: number;
  readonly answeredAt: number;
  readonly admitted: boolean;
}

export interface Allowance {
  readonly capacity: number;
  readonly windowMs: number;
}

export interface Judgement {
  /** Intervals in which a key was admitted more often than capacity + refill × time. */
  readonly violations: string[];
  /** The admitted requests, as a share of the minimum to which all keys were entitled. */
  readonly usedShare: number;
}

export function judge(observed: readonly Observed[], allowance: Allowance): Judgement {
  const byKey = Map.groupBy(observed, ({ key }) => key);
  const violations = [...byKey.values()].flatMap((requests) => excesses(requests, allowance));
  let admitted = 0;
  let allowed = 0;
  for (const requests of byKey.values()) {
    const owed = leastAllowance(requests, allowance);
    admitted += Math.min(requests.filter((request) => request.admitted).length, owed);
    allowed += owed;
  }
  return { violations, usedShare: admitted / allowed };
}

/**
 * Counts the decisions that were certainly made in each interval between two admitted requests. A decision is made
 * after its request was sent and before it was answered, so an interval lasts from the sending of its first request to
 * the answer to its last.
 */
function excesses(requests: readonly Observed[], { capacity, windowMs }: Allowance): string[] {
  const admitted = requests.filter((request) => request.admitted);
  const starts = admitted.map(({ sentAt }) => sentAt).sort((a, b) => a - b);
  const byEnd = admitted.toSorted((a, b) => a.answeredAt - b.answeredAt);
  const found: string[] = [];
  for (const start of starts) {
    let count = 0;
    for (const { sentAt, answeredAt, key } of byEnd) {
      if (sentAt < start) continue;
      count += 1;
      const bound = capacity + ((answeredAt - start) * capacity) / windowMs;
      if (count > bound)
        found.push(`${key}: ${count} in ${(answeredAt - start).toFixed(1)} ms, bound ${bound.toFixed(3)}`);
    }
  }
  return found;
}

/**
 * The minimum number of requests that had to be admitted, computed from the times at which they were sent. Refill
 * begins no later than the first answer, and each decision is made after its request was sent. A refused request shows
 * that at least the number counted here had been admitted by then, so the bound holds in whatever order the decisions
 * were made.
 */
function leastAllowance(requests: readonly Observed[], { capacity, windowMs }: Allowance): number {
  const first = Math.min(...requests.map(({ answeredAt }) => answeredAt));
  let owed = 0;
  for (const { sentAt } of requests.toSorted((a, b) => a.sentAt - b.sentAt)) {
    const tokens = capacity + (Math.max(0, sentAt - first) * capacity) / windowMs;
    if (tokens >= owed + 1) owed += 1;
  }
  return owed;
}
