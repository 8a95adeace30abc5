import { setTimeout as sleep } from 'node:timers/promises';
import { type CheckResult, isBad, silent, unknown } from '../../check-result.ts';

/** A dependency that does not answer within this time has the status unknown. */
const KNOWN_WITHIN_MS = 3_000;
/** How long the first response waits for the first check. By default, orchestrators time out after a second. */
const FIRST_WITHIN_MS = 700;
const CHECK_EVERY_MS = 1_000;
/** How often expensive checks run: while all results are good, and while one of them is bad. */
const SELDOM_MS = { good: 60_000, bad: 10_000 };
/** Somebody counts as watching for this long after a call. */
const WATCHED_WITHIN_MS = 5_000;
/** The maximum number of findings in the detail of readiness. */
const MOST_SHOWN = 5;
/** Findings older than this are outdated. Orchestrators usually check readiness every five to ten seconds. */
const KEPT_MS = 30_000;

type Findings = Promise<readonly CheckResult[]> | readonly CheckResult[];
type Check = () => Findings;

/** Returns the findings of a check, or, after three seconds, a finding with the status unknown. Never rejects. */
export async function answered(about: string, check: () => Findings): Promise<readonly CheckResult[]> {
  try {
    return await Promise.race([check(), sleep(KNOWN_WITHIN_MS, [silent(about)], { ref: false })]);
  } catch (thrown) {
    return [unknown(about, `cannot be checked: ${(thrown as Error).message}`, "See the gateway's log for details.")];
  }
}

/**
 * Checks what the gateway depends on: once a second while somebody watches, otherwise for each readiness check. The
 * console, readiness and the doctor all report these findings, so that they agree.
 */
export class Health {
  readonly #checks: Readonly<Record<string, Check>>;
  readonly #seldom: Readonly<Record<string, Check>>;
  readonly #findings = new FindingsSince();
  readonly #stopped = new AbortController();
  /** The last findings of each check. */
  readonly #found = new Map<string, readonly CheckResult[]>();
  /** The latest findings. */
  #seen: readonly CheckResult[] = [];
  #watchedAt = Number.NEGATIVE_INFINITY;
  #checkedAt = Number.NEGATIVE_INFINITY;
  #seldomAt = Number.NEGATIVE_INFINITY;
  /** The checks in progress, by name. */
  readonly #running = new Map<string, Promise<void>>();
  /** Resolves when all checks without a finding are complete, or when the first response stops waiting. */
  #first: Promise<unknown> | undefined;
  #isRepeating = false;

  /**
   * @param checks quick checks by name
   * @param seldom expensive checks by name: they run about once a minute while somebody is watching, and nothing waits
   *   for them
   */
  constructor(checks: Readonly<Record<string, Check>>, seldom: Readonly<Record<string, Check>>) {
    this.#checks = checks;
    this.#seldom = seldom;
  }

  /** Keeps checking for a while. Resolves when the first check is complete or late. */
  async watch(): Promise<void> {
    const wasWatched = this.#isWatched;
    this.#watchedAt = performance.now();
    if (!wasWatched) {
      this.#seldomAt = Number.NEGATIVE_INFINITY;
      this.#begin();
    }
    void this.#keepChecking();
    await this.#first;
  }

  /** The findings that are faults or unknown, faults first. Empty if all is well, or nothing was checked lately. */
  bad(): readonly CheckResult[] {
    if (this.#isOutdated) return [];
    return ['fault', 'unknown'].flatMap((status) => this.#seen.filter((one) => one.status === status));
  }

  /** Describes the bad findings, for readiness. */
  async detail(): Promise<string | undefined> {
    if (!this.#isWatched && performance.now() - this.#checkedAt >= CHECK_EVERY_MS) this.#begin();
    await this.#first;
    const bad = this.bad();
    const shown = bad
      .slice(0, MOST_SHOWN)
      .map((one) => `${one.about} ${one.found} (${one.status} since ${one.since}).`);
    if (bad.length > MOST_SHOWN) shown.push(`${bad.length - MOST_SHOWN} more: see the doctor.`);
    return shown.join(' ') || undefined;
  }

  /** Records the findings of an expensive check. The doctor calls this too, so that nothing contradicts its report. */
  note(about: string, found: readonly CheckResult[]): void {
    if (!this.#isWatched || this.#seldom[about] === undefined) return;
    this.#found.set(about, found);
    this.#report();
  }

  stop(): void {
    this.#stopped.abort();
  }

  get #isWatched(): boolean {
    return performance.now() - this.#watchedAt < WATCHED_WITHIN_MS;
  }

  get #isOutdated(): boolean {
    return performance.now() - this.#checkedAt >= KEPT_MS;
  }

  /** Starts the checks. Bad findings stay until newer ones replace them, and no call waits for the newer ones. */
  #begin(): void {
    for (const [about, found] of this.#found) if (this.#isOutdated || !found.some(isBad)) this.#found.delete(about);
    this.#report();
    this.#check();
    const fresh = [...this.#running].flatMap(([about, done]) => (this.#found.has(about) ? [] : done));
    this.#first = Promise.race([Promise.all(fresh), sleep(FIRST_WITHIN_MS, undefined, { ref: false })]);
  }

  #check(): void {
    const now = performance.now();
    this.#checkedAt = now;
    for (const [about, check] of Object.entries(this.#checks)) if (!this.#running.has(about)) this.#run(about, check);
    const seldom = Object.keys(this.#seldom).flatMap((about) => this.#found.get(about) ?? []);
    const seldomMs = seldom.some(isBad) ? SELDOM_MS.bad : SELDOM_MS.good;
    if (!this.#isWatched || now - this.#seldomAt < seldomMs) return;
    this.#seldomAt = now;
    for (const [about, check] of Object.entries(this.#seldom))
      void answered(about, check).then((found) => this.note(about, found));
  }

  #run(about: string, check: Check): void {
    const noted = (found: readonly CheckResult[]) => {
      this.#running.delete(about);
      this.#found.set(about, found);
      this.#report();
    };
    this.#running.set(about, answered(about, check).then(noted));
  }

  #report(): void {
    const late = (about: string) => [silent(about, `did not answer within ${FIRST_WITHIN_MS / 1_000} s`)];
    const found = [
      ...Object.keys(this.#checks).flatMap((about) => this.#found.get(about) ?? late(about)),
      // Expensive checks are repeated only while somebody is watching. At other times, their findings are left out,
      // because they could be outdated.
      ...Object.keys(this.#isWatched ? this.#seldom : {}).flatMap((about) => this.#found.get(about) ?? []),
    ];
    this.#seen = this.#findings.seen(found);
  }

  async #keepChecking(): Promise<void> {
    if (this.#isRepeating) return;
    this.#isRepeating = true;
    const { signal } = this.#stopped;
    while (!signal.aborted && this.#isWatched) {
      await sleep(CHECK_EVERY_MS, undefined, { signal, ref: false }).catch(() => undefined);
      if (!signal.aborted) this.#check();
    }
    this.#isRepeating = false;
  }
}

/** Records when each bad finding first appeared. Only findings of the last check are kept. */
export class FindingsSince {
  #since: ReadonlyMap<string, string | undefined> = new Map();

  /**
   * Adds the times to the findings of a check.
   * @param known findings of a more frequent check, whose times take precedence
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

/** Identifies a finding. Its text is left out, because it may contain a number that changes. */
const nameOf = ({ about, status, advice }: CheckResult): string => JSON.stringify([about, status, advice]);
