import type { CheckResult } from '../../check-result.ts';

/** Remembers since when each bad finding has existed. Only findings of the last check are remembered. */
export class FindingsSince {
  #since: ReadonlyMap<string, string> = new Map();

  /**
   * Adds the times to the findings of a check.
   * @param known findings of another check that runs more often, whose times are used
   */
  seen(findings: readonly CheckResult[], known: readonly CheckResult[] = []): CheckResult[] {
    const now = new Date().toISOString();
    const others = new Map(known.map((one) => [nameOf(one), one.since]));
    const seen = findings.map((finding) =>
      finding.status === 'good'
        ? finding
        : {
            ...finding,
            since: finding.since ?? others.get(nameOf(finding)) ?? this.#since.get(nameOf(finding)) ?? now,
          },
    );
    this.#since = new Map(seen.flatMap((one) => ('since' in one ? [[nameOf(one), one.since]] : [])));
    return seen;
  }
}

/** The text of a finding is left out, because it can hold a number that changes. */
const nameOf = ({ about, status, advice }: CheckResult): string => JSON.stringify([about, status, advice]);
