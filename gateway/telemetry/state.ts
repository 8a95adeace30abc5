import { z } from 'zod';
import type { Family, Series } from '../../shared/process/counts.ts';
import type { Metrics } from '../../shared/process/metrics.ts';
import { every } from '../../shared/process/repeat.ts';
import { count, listOf, time } from '../../shared/schemas/answer-parts.ts';
import type { CertificateState, WatchedCertificate } from '../certificate.ts';
import type { Backend, RedisState } from '../stores/backend.ts';
import type { PlanCache } from '../stores/plan-cache.ts';
import type { CoreState } from '../upstream/core.ts';
import type { Forwarder } from '../upstream/forwarder.ts';
import type { DecisionOutcome, NoDecisionReason } from './exchange.ts';
import type { KeyCounts, KeysOfMinute, KeyWatch } from './key-watch.ts';
import { DECISIONS, NONE, REQUEST_DURATION, REQUESTS, WITHOUT_DECISION } from './request-metrics.ts';

/**
 * Exposes the state of a process that serves clients. The state is read on each scrape, and exposed per worker because
 * a sum would be meaningless.
 */
export function exposeState(
  metrics: Metrics,
  backend: Pick<Backend, 'nodesAway'> & { readonly planCache: PlanCache },
  forwarder: Forwarder,
  watch: KeyWatch,
): void {
  const { planCache } = backend;
  metrics.gauge(
    'gateway_redis_nodes_away',
    'Unavailable Redis nodes, whose decisions are made locally.',
    backend.nodesAway,
  );
  metrics.gauge('gateway_bans_active', 'Banned keys, as far as this process knows.', () => watch.counts().bans);
  const byPlan = (name: string, help: string, read: (counts: KeyCounts) => KeyCounts['asking']) =>
    metrics.gauges(name, `${help}, as far as this process knows.`, 'plan', () => read(watch.counts()));
  byPlan('gateway_keys_near_day_limit', 'Keys with at most a fifth of their day limit left', ({ near }) => near);
  byPlan('gateway_keys_asking', 'Keys with a decision in the last ten minutes', ({ asking }) => asking);
  byPlan(
    'gateway_keys_refused',
    'Keys with a request over their limits in the last ten minutes',
    ({ refused }) => refused,
  );
  metrics.gauge(
    'gateway_plans_changed_timestamp_seconds',
    'When this process last applied a change to the plans.',
    () => planCache.changedAt.getTime() / 1_000,
  );
  metrics.gauge(
    'gateway_plans_rejected_values',
    'Unusable values in the plan table, for which the last valid ones stay in force.',
    () => planCache.rejected.length,
  );
  metrics.gauge('gateway_plans_readable', '1 while the plan table can be read.', () => Number(planCache.isReadable));

  const byCore = (name: string, help: string, read: (state: CoreState) => number) =>
    metrics.gauges(`gateway_upstream_${name}`, help, 'core', () =>
      forwarder.cores.states().map((state) => [state.origin, read(state)]),
    );
  byCore('ready', '1 while a core is ready, as far as the gateway knows.', ({ ready }) => Number(ready));
  byCore('in_flight', 'Requests handed to a core that have not finished.', ({ inFlight }) => inFlight);
  byCore('queued', 'Requests in flight that wait for a connection.', ({ queued }) => queued);
  metrics.gauge(
    'gateway_upstream_names_lost',
    'Core names that cannot be resolved, whose last addresses are still in use.',
    () => forwarder.namesLost,
  );
  byCore('limit', 'The current limit of concurrent requests to a core.', ({ limit }) => limit);
}

/** Without TLS these families have no series. */
export function exposeCertificate(metrics: Metrics, certificate: WatchedCertificate | undefined): void {
  metrics.gauge(
    'gateway_certificate_expires_timestamp_seconds',
    'When the certificate that clients see expires.',
    () => certificate?.state().expiresAt,
  );
  metrics.gauge(
    'gateway_certificate_rejected',
    '1 while the certificate files are invalid and the last valid ones are in use.',
    () => certificate && Number(certificate.state().rejected !== undefined),
  );
}

/** Called once per gateway. Redis is queried on each scrape; a node that does not answer has no series. */
export function exposeRedisMemory(metrics: Metrics, { memoryUsed }: Pick<Backend, 'memoryUsed'>): void {
  metrics.gauges(
    'gateway_redis_memory_used_ratio',
    "Used memory of a Redis node, as a ratio of its maxmemory, or of its machine's memory if that is not set.",
    'node',
    memoryUsed,
  );
}

/** Called once per gateway. The store is queried on each scrape. */
export function exposeBackup(metrics: Metrics, last: () => Promise<number | undefined>): void {
  metrics.gauge(
    'gateway_backup_completed_timestamp_seconds',
    'When the last complete backup of all keys was made; 0 if there are keys but no backup.',
    last,
  );
}

/** Decisions since the gateway started, as the operators' API names them. */
export const Totals = z.object({
  admitted: count,
  /** The request was over the minute or day limit. */
  refused: count,
  banned: count,
  /** The secret lacks the scope. */
  forbidden: count,
  /** The key is invalid, for any reason. */
  unauthorized: count,
  /** Overload refused the request before a decision. */
  shed: count,
  /** No decision was possible. */
  undecided: count,
  /** How many of these were decided locally, because Redis was unavailable. */
  local: count,
});
type Totals = z.infer<typeof Totals>;

type Total = keyof Omit<Totals, 'local'>;

/** The decision on a request, or why there was none. */
type Shown = DecisionOutcome | NoDecisionReason;

/** The total in which each outcome is counted; undefined if the request needed no decision. */
const TOTAL_OF: Readonly<Record<Shown, Total | undefined>> = {
  admitted: 'admitted',
  refused_minute: 'refused',
  refused_day: 'refused',
  banned: 'banned',
  malformed: 'unauthorized',
  unknown: 'unauthorized',
  forbidden: 'forbidden',
  elsewhere: 'unauthorized',
  disabled: 'unauthorized',
  expired: 'unauthorized',
  shed: 'shed',
  unavailable: 'undecided',
  unusable: 'undecided',
  reference: undefined,
  own: undefined,
  invalid: undefined,
  failed: undefined,
  left: undefined,
};

interface TrafficTotals {
  readonly totals: Totals;
  /** By plan, and by outcome as in the metrics. The plan is `none` if it is unknown. Zeros are left out. */
  readonly plans: Readonly<Record<string, Partial<Record<Shown, number>>>>;
}

/** Computes the running totals from the counts. */
export function totalsOf(counted: readonly Family[]): TrafficTotals {
  const totals = { admitted: 0, refused: 0, banned: 0, forbidden: 0, unauthorized: 0, shed: 0, undecided: 0, local: 0 };
  const plans: Record<string, Partial<Record<Shown, number>>> = {};
  for (const { labels, value } of [...seriesOf(counted, DECISIONS), ...seriesOf(counted, WITHOUT_DECISION)]) {
    const { outcome, reason, plan = NONE, mode } = labels;
    const shown = (outcome ?? reason) as Shown;
    const total = TOTAL_OF[shown];
    if (value === 0 || total === undefined) continue;
    totals[total] += value;
    if (mode === 'local') totals.local += value;
    plans[plan] = { ...plans[plan], [shown]: (plans[plan]?.[shown] ?? 0) + value };
  }
  return { totals, plans };
}

/** The series of a family; none before its first count. */
export const seriesOf = (counted: readonly Family[], wanted: string): readonly Series[] =>
  counted.find(({ name }) => name === wanted)?.values ?? [];

/** A bucket of a histogram: its bound in seconds, and the count up to it. */
type Bucket = readonly [bound: number, count: number];

/** The buckets of a histogram in ascending order, summed over all its labels. */
export function bucketsOf(counted: readonly Family[], wanted: string): Bucket[] {
  const buckets = new Map<number, number>();
  for (const { metricName, labels, value } of seriesOf(counted, wanted)) {
    if (metricName !== `${wanted}_bucket`) continue;
    const bound = labels.le === '+Inf' ? Infinity : Number(labels.le);
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  return [...buckets];
}

/**
 * Computes a quantile as Prometheus' histogram_quantile does, by linear interpolation within a bucket. Above the last
 * finite bound, the result is that bound.
 * @returns milliseconds with two decimals; null if nothing was counted
 */
export function quantile(buckets: readonly Bucket[], share: number): number | null {
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const rank = share * total;
  const at = buckets.findIndex(([, count]) => count >= rank);
  const [[bound, count], [lower, below]] = [buckets[at] as Bucket, buckets[at - 1] ?? [0, 0]];
  const seconds = bound === Infinity ? lower : lower + ((bound - lower) * (rank - below)) / (count - below);
  return Math.round(seconds * 1e5) / 100;
}

/** The processes that serve clients, as the operators' listener sees them. */
export interface TrafficSource {
  /** Their counts since the gateway started. */
  counted(): readonly Family[];
  /** For each of them, the keys of the last minute in which a ban refused any. */
  banned(): readonly KeysOfMinute[];
  /** Whether any of them decides locally although Redis should decide. */
  isLocal(): boolean;
  /** The workers that this process supervises; undefined if it serves clients itself. */
  readonly workers?: (() => WorkersState) | undefined;
  /** The gateway's dependencies as each of them sees them. */
  processes(): readonly ProcessState[];
}

const WorkerState = z.object({
  worker: count,
  /** Undefined while no process runs in this slot. */
  pid: count.optional(),
  /** Whether the first process of this slot has neither served nor ended yet. */
  isStarting: z.boolean(),
  /** When it began to serve, or when its predecessor ended. */
  since: time,
  /** How long it has been silent, in ms. */
  silentMs: z.number(),
});
export type WorkerState = z.infer<typeof WorkerState>;

export const WorkersState = z.object({ serving: count, wanted: count, each: listOf(WorkerState) });
export type WorkersState = z.infer<typeof WorkersState>;

/** A core as one process sees it. */
export type SeenCore = CoreState;

/** The gateway's dependencies as a process that serves clients sees them. */
export interface ProcessState {
  readonly cores: readonly CoreState[];
  /** Undefined if the gateway is configured without Redis. */
  readonly redis: RedisState | undefined;
  /** Undefined without TLS. */
  readonly certificate: CertificateState | undefined;
}

const UPDATE_EVERY_MS = 500;
const MINUTE_MS = 60_000;
/** An hour of full minutes, and the current one. */
const KEPT = 61;
const FIRST_SERVER_ERROR = 500;

interface Minute {
  /** The number of minutes since 1970. */
  readonly minute: number;
  /** When it was first seen, in Unix milliseconds. */
  readonly since: number;
  /** The running totals at its beginning and at its end. */
  readonly before: Counts;
  after?: Counts;
  /** At most 1,000 per process are distinguished. */
  readonly bannedKeys: Set<string>;
}

/** How many responses of the last one to two minutes had each status. */
export interface LatelyAnswered {
  readonly seconds: number;
  readonly statuses: ReadonlyMap<string, number>;
}

/**
 * Watches clients' requests: the last hour by minute, and whether decisions are local. The running totals are read once
 * a minute, so that requests cost nothing extra. A restart clears the hour.
 */
export class WatchedTraffic {
  readonly since = new Date();
  readonly source: TrafficSource;
  readonly stop: () => void;
  #minutes: readonly Minute[] = [];
  #mode: { readonly isLocal: boolean; readonly since: Date };

  constructor(source: TrafficSource) {
    this.source = source;
    this.#mode = { isLocal: source.isLocal(), since: this.since };
    this.#update();
    this.stop = every(UPDATE_EVERY_MS, () => this.#update());
  }

  /** Whether decisions are local because Redis is unavailable, and since when. */
  get mode() {
    this.#update();
    return this.#mode;
  }

  /** The minutes of the last hour, oldest first. The last one is still running. */
  minutes() {
    this.#update();
    const now = countsOf(this.source.counted());
    return this.#minutes.map(({ minute, before, after = now, bannedKeys }) => {
      const inMinute = (total: keyof Counts['totals']) => Math.max(0, after.totals[total] - before.totals[total]);
      const answered = after.answered.map(([le, count], at): Bucket => [le, count - (before.answered[at]?.[1] ?? 0)]);
      return {
        at: new Date(minute * MINUTE_MS).toISOString(),
        admitted: inMinute('admitted'),
        refused: inMinute('refused'),
        banned: inMinute('banned'),
        bannedKeys: bannedKeys.size,
        unauthorized: inMinute('unauthorized'),
        serverErrors: inMinute('serverErrors'),
        p50: quantile(answered, 0.5),
        p99: quantile(answered, 0.99),
      };
    });
  }

  /** The responses since the beginning of the previous minute, or since the start, and how long that is. */
  lately(): LatelyAnswered {
    this.#update();
    const now = statusesOf(this.source.counted());
    const minute = Math.floor(Date.now() / MINUTE_MS);
    const first = this.#minutes.find((one) => one.minute >= minute - 1);
    const before = first?.before.statuses ?? now;
    const statuses = new Map(
      [...now].map(([status, count]) => [status, Math.max(0, count - (before.get(status) ?? 0))]),
    );
    return { seconds: Math.round((Date.now() - (first?.since ?? Date.now())) / 1_000), statuses };
  }

  #update(): void {
    const isLocal = this.source.isLocal();
    if (isLocal !== this.#mode.isLocal) this.#mode = { isLocal, since: new Date() };
    const minute = Math.floor(Date.now() / MINUTE_MS);
    const last = this.#minutes.at(-1);
    if (last?.minute !== minute) {
      const before = countsOf(this.source.counted());
      if (last !== undefined) last.after = before;
      // The clock can be set back, but each minute is reported once.
      const kept = this.#minutes.filter((one) => one.minute > minute - KEPT && one.minute < minute);
      this.#minutes = [...kept, { minute, since: Date.now(), before, bannedKeys: new Set() }];
    }
    // A process can report a key after its minute is over.
    for (const { minute, ids } of this.source.banned()) {
      const known = this.#minutes.find((one) => one.minute === minute)?.bannedKeys;
      for (const id of ids) known?.add(id);
    }
  }
}

type Counts = ReturnType<typeof countsOf>;

/** The running totals whose differences are a minute's counts. */
function countsOf(counted: readonly Family[]) {
  const statuses = statusesOf(counted);
  const failed = [...statuses].filter(([status]) => Number(status) >= FIRST_SERVER_ERROR);
  const serverErrors = failed.reduce((sum, [, count]) => sum + count, 0);
  const totals = { ...totalsOf(counted).totals, serverErrors };
  return { totals, statuses, answered: bucketsOf(counted, REQUEST_DURATION) };
}

/** The number of responses to clients by status. */
function statusesOf(counted: readonly Family[]): ReadonlyMap<string, number> {
  const statuses = new Map<string, number>();
  for (const { labels, value } of seriesOf(counted, REQUESTS)) {
    const { status = '' } = labels;
    statuses.set(status, (statuses.get(status) ?? 0) + value);
  }
  return statuses;
}
