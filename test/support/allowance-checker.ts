/**
 * Judges a limiter by what its clients saw, with no code of its own: no bucket, no clock of the server, no header. Each
 * request is an interval in which its decision was taken; times are milliseconds of one clock.
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
  /** Stretches of time in which a key was admitted more often than capacity + refill × time. */
  readonly violations: string[];
  /** What was admitted, of what every key could have had at the least. */
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
 * For every stretch from one admitted request to a later one: how many were surely decided in it. A decision lies between
 * sending and answer, so the stretch is from the first's sending to the last's answer, and all in between count.
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

/** What a client that asked all the time was owed at the least: whole tokens, between its first answer and its last sending. */
function leastAllowance(requests: readonly Observed[], { capacity, windowMs }: Allowance): number {
  const first = Math.min(...requests.map(({ answeredAt }) => answeredAt));
  const last = Math.max(...requests.map(({ sentAt }) => sentAt));
  return Math.floor(capacity + (Math.max(0, last - first) * capacity) / windowMs);
}
