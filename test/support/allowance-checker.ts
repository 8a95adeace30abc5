/**
 * Judges a limiter only by what its clients saw: without its code, bucket, server clock or headers. Each request is an
 * interval that contains its decision. Times are milliseconds of one clock.
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
  /** Admitted requests as a share of the least that all keys were owed when they asked. */
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
 * For every interval from one admitted request to a later one: how many decisions surely lie in it. A decision lies
 * between sending and answer, so the interval reaches from the first sending to the last answer, and everything between
 * counts.
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
 * The least that a client was owed, at the times at which it asked: refill begins at the latest with the first answer,
 * and a decision comes after its sending. While a request is refused, at least as many were admitted as count here up to
 * its sending; so whatever the order of decisions, no fewer are admitted in the end.
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
