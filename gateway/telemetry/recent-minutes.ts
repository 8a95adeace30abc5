import type { Family } from '../../shared/process/counts.ts';
import type { KeysOfMinute } from './key-watch.ts';
import { REQUEST_DURATION, REQUESTS } from './request-metrics.ts';
import { totalsOf } from './totals.ts';

/**
 * The last hour of this gateway by minute, derived from the running totals: they are read once a minute, so no request
 * costs more. Kept in memory; a restart begins anew.
 */

const MINUTE_MS = 60_000;
/** An hour of full minutes, plus the current one. */
const KEPT = 61;
const LOOK_EVERY_MS = 1_000;
const FIRST_SERVER_ERROR = 500;

/** What happened in one minute. */
export interface MinuteReport {
  /** Its beginning. */
  readonly at: string;
  readonly admitted: number;
  readonly refused: number;
  /** Requests that a ban refused. */
  readonly banned: number;
  /** Their keys. At most 1,000 per process are distinguished. */
  readonly bannedKeys: number;
  readonly unauthorized: number;
  readonly serverErrors: number;
  /** Milliseconds from the head of a request to its answer, interpolated as Prometheus does. Null without a request. */
  readonly p50: number | null;
  readonly p99: number | null;
}

interface Snapshot {
  readonly admitted: number;
  readonly refused: number;
  readonly banned: number;
  readonly unauthorized: number;
  readonly serverErrors: number;
  /** Answers up to each bound, in seconds, ascending. */
  readonly answered: ReadonlyMap<number, number>;
}

export interface MinuteSource {
  counted(): readonly Family[];
  /** One list for each process. */
  banned(): readonly KeysOfMinute[];
}

export class RecentMinutes {
  readonly #source: MinuteSource;
  readonly #now: () => number;
  readonly #timer: NodeJS.Timeout;
  readonly #closed: { readonly minute: number; readonly report: MinuteReport }[] = [];
  readonly #bannedIn = new Map<number, Set<string>>();
  #minute: number;
  #before: Snapshot;

  /** @param now Unix time in ms */
  constructor(source: MinuteSource, now: () => number = Date.now) {
    this.#source = source;
    this.#now = now;
    this.#minute = this.#minuteNow();
    this.#before = snapshotOf(source.counted());
    this.#timer = setInterval(() => this.closeMinute(), LOOK_EVERY_MS).unref();
  }

  /** Closes the minute if it is over. */
  closeMinute(): void {
    this.#noteBanned();
    const minute = this.#minuteNow();
    if (minute === this.#minute) return;
    const after = snapshotOf(this.#source.counted());
    this.#closed.push({ minute: this.#minute, report: this.#reportOf(this.#minute, after) });
    this.#before = after;
    this.#minute = minute;
    // The clock can be set back; a minute is reported once.
    const isKept = (one: number) => one > minute - KEPT && one < minute;
    this.#closed.splice(0, this.#closed.length, ...this.#closed.filter((one) => isKept(one.minute)));
    for (const one of this.#bannedIn.keys()) if (!isKept(one) && one !== minute) this.#bannedIn.delete(one);
  }

  /** The minutes of the last hour, the oldest first. The last one is not over. */
  reports(): MinuteReport[] {
    this.closeMinute();
    const current = this.#reportOf(this.#minute, snapshotOf(this.#source.counted()));
    // A process can report a key only after its minute was closed.
    const closed = this.#closed.map(({ minute, report }) => ({ ...report, bannedKeys: this.#bannedKeys(minute) }));
    return [...closed, current];
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #noteBanned(): void {
    for (const { minute, ids } of this.#source.banned()) {
      if (minute <= this.#minute - KEPT || ids.length === 0) continue;
      const known = this.#bannedIn.get(minute) ?? new Set();
      for (const id of ids) known.add(id);
      this.#bannedIn.set(minute, known);
    }
  }

  #bannedKeys(minute: number): number {
    return this.#bannedIn.get(minute)?.size ?? 0;
  }

  #reportOf(minute: number, after: Snapshot): MinuteReport {
    const before = this.#before;
    const answered = [...after.answered].map(([bound, count]): [number, number] => [
      bound,
      count - (before.answered.get(bound) ?? 0),
    ]);
    const inMinute = (total: Exclude<keyof Snapshot, 'answered'>) => Math.max(0, after[total] - before[total]);
    return {
      at: new Date(minute * MINUTE_MS).toISOString(),
      admitted: inMinute('admitted'),
      refused: inMinute('refused'),
      banned: inMinute('banned'),
      bannedKeys: this.#bannedKeys(minute),
      unauthorized: inMinute('unauthorized'),
      serverErrors: inMinute('serverErrors'),
      p50: quantile(answered, 0.5),
      p99: quantile(answered, 0.99),
    };
  }

  #minuteNow(): number {
    return Math.floor(this.#now() / MINUTE_MS);
  }
}

function snapshotOf(counted: readonly Family[]): Snapshot {
  const { admitted, refused, banned, unauthorized } = totalsOf(counted).totals;
  const valuesOf = (wanted: string) => counted.find(({ name }) => name === wanted)?.values ?? [];
  let serverErrors = 0;
  for (const { labels, value } of valuesOf(REQUESTS))
    if (Number(labels.status) >= FIRST_SERVER_ERROR) serverErrors += value;
  const answered = new Map(bucketsOf(counted, REQUEST_DURATION));
  return { admitted, refused, banned, unauthorized, serverErrors, answered };
}

/** The counts up to each bound of a histogram, over all its labels, ascending. */
export function bucketsOf(counted: readonly Family[], wanted: string): [bound: number, count: number][] {
  const buckets = new Map<number, number>();
  for (const { metricName, labels, value } of counted.find(({ name }) => name === wanted)?.values ?? []) {
    if (metricName !== `${wanted}_bucket`) continue;
    const bound = labels.le === '+Inf' ? Infinity : Number(labels.le);
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  return [...buckets];
}

/**
 * As histogram_quantile of Prometheus: linear within a bucket, and the last finite bound above it.
 * @param buckets the count up to each bound in seconds, ascending
 * @returns milliseconds, with two digits after the point; null without a count
 */
export function quantile(buckets: readonly (readonly [bound: number, count: number])[], share: number): number | null {
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const rank = share * total;
  let [lower, below] = [0, 0];
  for (const [bound, count] of buckets) {
    if (count >= rank) {
      const seconds = bound === Infinity ? lower : lower + ((bound - lower) * (rank - below)) / (count - below);
      return Math.round(seconds * 1e5) / 100;
    }
    [lower, below] = [bound, count];
  }
  return null;
}
