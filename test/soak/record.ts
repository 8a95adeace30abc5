import { type Allowance, judge, type Observed } from '../support/allowance-checker.ts';
import { type Failure, unexplained } from '../support/failures.ts';
import type { LogLine } from '../support/log.ts';

/** A temporary fault, with its start and end by performance.now(). */
export interface Disturbance {
  readonly kind: 'redis' | 'core' | 'restart' | 'database' | 'none';
  readonly name: string;
  readonly from: number;
  to: number;
}

/** A 5xx answer that a client saw, and the base URL of the listener. */
type SeenFailure = Failure & { readonly url: string; readonly at: number };

/** The time after a fault in which answers to affected requests may still arrive. */
const AFTERMATH_MS = 3_000;
const MAX_TOLD = 20;
/** The longest delay of a gateway's log, because it is buffered. */
export const LOG_LAG_MS = 1_000;

/** All observations of a soak test, and all broken promises. */
export class SoakRecord {
  readonly #counts = new Map<string, number>();
  readonly #broken: string[] = [];
  readonly #metered: Observed[] = [];
  readonly #disturbances: Disturbance[] = [];
  readonly #failures: SeenFailure[] = [];
  readonly #failureLines: LogLine[] = [];
  readonly #outages = new Map<string, Disturbance>();
  brokenCount = 0;
  longestMs = 0;

  count(what: string): void {
    this.#counts.set(what, this.counted(what) + 1);
  }

  counted(what: string): number {
    return this.#counts.get(what) ?? 0;
  }

  /** The counts whose names begin with this prefix, by the rest of the name. */
  countedUnder(beginning: string): [name: string, count: number][] {
    return [...this.#counts]
      .filter(([name]) => name.startsWith(beginning))
      .map(([name, count]) => [name.slice(beginning.length), count]);
  }

  broke(promise: string): void {
    this.brokenCount += 1;
    if (this.#broken.length < MAX_TOLD) this.#broken.push(promise);
  }

  get broken(): readonly string[] {
    const more = this.brokenCount - this.#broken.length;
    return more > 0 ? [...this.#broken, `and ${more} more`] : this.#broken;
  }

  took(ms: number): void {
    this.longestMs = Math.max(this.longestMs, ms);
  }

  metered(observed: Observed): void {
    this.#metered.push(observed);
  }

  disturb(kind: Disturbance['kind'], name: string, from = performance.now()): Disturbance {
    const disturbance = { kind, name, from, to: Number.POSITIVE_INFINITY };
    this.#disturbances.push(disturbance);
    return disturbance;
  }

  /** Whether a request that was in flight at that time may have been affected by a fault of this kind. */
  wasDisturbed(kind: Disturbance['kind'], sentAt: number, endedAt: number): boolean {
    return this.#disturbances.some((one) => one.kind === kind && one.from < endedAt && sentAt < one.to + AFTERMATH_MS);
  }

  /** Records a 5xx answer that a client saw. */
  failed(failure: SeenFailure): void {
    this.#failures.push(failure);
    this.count('failures seen');
  }

  /** The number of 5xx answers from a listener since a time. */
  failuresOf(url: string, since: number): number {
    return this.#failures.filter((failure) => failure.url === url && failure.at >= since).length;
  }

  /** Checks that each failure that clients saw has a log line with its cause. */
  judgeFailures(): void {
    for (const { status, requestId } of unexplained(this.#failures, this.#failureLines))
      this.broke(`no log line gives the cause of the ${status} of ${requestId}`);
  }

  /** Checks a line of a service's log: no input and no fault may cause an internal error. */
  logged(line: string): void {
    if (/"status":5\d\d,/.test(line)) this.#failureLines.push(JSON.parse(line) as LogLine);
    if (line.includes('"code":"internal_error"') || line.includes('"level":60')) this.broke(`in the log: ${line}`);
  }

  /** Checks a line of a gateway's log. A period of local decisions counts as a Redis outage, whatever caused it. */
  loggedByGateway(gateway: string, line: string): void {
    this.logged(line);
    if (line.includes('"mode":"local"')) this.count('local decisions');
    if (line.includes('"outcome":"shed"')) this.count('shed');
    if (line.includes('"msg":"decisions are local"'))
      this.#outages.set(gateway, this.disturb('redis', gateway, performance.now() - LOG_LAG_MS));
    const outage = this.#outages.get(gateway);
    if (outage && line.includes('"msg":"decisions are shared again"')) outage.to = performance.now();
  }

  /**
   * Compares the admissions of the metered keys with their allowance. The allowance is exact while decisions were
   * shared. In an outage, each gateway may use up the remaining tokens, and so may Redis afterwards.
   */
  judgeAllowances(allowance: Allowance, gateways: number): void {
    const outages = merged(this.#disturbances.filter(({ kind }) => kind === 'redis'));
    const edges = [Number.NEGATIVE_INFINITY, ...outages.flatMap(({ from, to }) => [from, to])];
    edges.push(Number.POSITIVE_INFINITY);
    for (let at = 0; at + 1 < edges.length; at += 2) {
      this.#judge(allowance, edges[at] as number, edges[at + 1] as number, 'while decisions were shared');
      if (at + 3 >= edges.length) continue;
      const { capacity, windowMs } = allowance;
      const loose = { capacity: capacity * (gateways + 1), windowMs };
      this.#judge(loose, edges[at] as number, edges[at + 3] as number, 'around an outage');
    }
  }

  #judge(allowance: Allowance, from: number, to: number, when: string): void {
    const between = this.#metered.filter(({ sentAt, answeredAt }) => sentAt >= from && answeredAt <= to);
    for (const violation of judge(between, allowance).violations) this.broke(`allowance ${when}: ${violation}`);
  }
}

/** The periods in which any fault lasted or still had effects. */
function merged(disturbances: readonly Disturbance[]): { from: number; to: number }[] {
  const stretches: { from: number; to: number }[] = [];
  for (const { from, to } of disturbances.toSorted((a, b) => a.from - b.from)) {
    const last = stretches.at(-1);
    const felt = to + AFTERMATH_MS;
    if (last !== undefined && from <= last.to) last.to = Math.max(last.to, felt);
    else stretches.push({ from, to: felt });
  }
  return stretches;
}
