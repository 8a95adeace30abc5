import { z } from 'zod';
import type { Family } from '../../shared/process/counts.ts';
import { count, listOf, time } from '../../shared/schemas/answer-parts.ts';
import type { RedisState } from '../stores/backend.ts';
import type { CoreState } from '../upstream/core.ts';
import type { KeysOfMinute } from './key-watch.ts';
import { REQUEST_DURATION, REQUESTS } from './request-metrics.ts';
import { type Bucket, bucketsOf, quantile, seriesOf, totalsOf } from './totals.ts';

/** What the operators' listener knows of the processes that serve clients. */
export interface TrafficSource {
  /** Their counts since the start. */
  counted(): readonly Family[];
  /** The keys that a ban last refused in each of them. */
  banned(): readonly KeysOfMinute[];
  /** Whether any of them decides locally although it should ask Redis. */
  isLocal(): boolean;
  /** The workers beside this process; undefined if this process serves clients itself. */
  readonly workers?: (() => WorkersState) | undefined;
  /** What each of them sees of the dependencies. */
  processes(): readonly ProcessState[];
}

const WorkerState = z.object({
  worker: count,
  /** Undefined while no process runs in its place. */
  pid: count.optional(),
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

/** What a process that serves clients sees of the gateway's dependencies. */
export interface ProcessState {
  readonly cores: readonly CoreState[];
  /** Undefined if decisions are embedded. */
  readonly redis: RedisState | undefined;
}

const UPDATE_EVERY_MS = 500;
const MINUTE_MS = 60_000;
/** These are an hour of full minutes and the current one. */
const KEPT = 61;
const FIRST_SERVER_ERROR = 500;

interface Minute {
  /** Counted since 1970. */
  readonly minute: number;
  /** The running totals at its beginning and at its end. */
  readonly before: Counts;
  after?: Counts;
  /** At most 1,000 per process are distinguished. */
  readonly bannedKeys: Set<string>;
}

/**
 * Watches the requests of clients: their last hour by minute, and whether decisions are local. The running totals are
 * read once a minute, so that requests cost nothing extra. A restart begins anew.
 */
export class WatchedTraffic {
  readonly since = new Date();
  readonly source: TrafficSource;
  readonly #timer: NodeJS.Timeout;
  #minutes: readonly Minute[] = [];
  #mode: { readonly isLocal: boolean; readonly since: Date };

  constructor(source: TrafficSource) {
    this.source = source;
    this.#mode = { isLocal: source.isLocal(), since: this.since };
    this.#update();
    this.#timer = setInterval(() => this.#update(), UPDATE_EVERY_MS).unref();
  }

  /** Whether decisions are local because Redis is away, and since when. */
  get mode() {
    this.#update();
    return this.#mode;
  }

  /** The minutes of the last hour, the oldest first. The last one is still running. */
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

  stop(): void {
    clearInterval(this.#timer);
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
      this.#minutes = [...kept, { minute, before, bannedKeys: new Set() }];
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
  const failed = seriesOf(counted, REQUESTS).filter(({ labels }) => Number(labels.status) >= FIRST_SERVER_ERROR);
  const serverErrors = failed.reduce((sum, { value }) => sum + value, 0);
  return { totals: { ...totalsOf(counted).totals, serverErrors }, answered: bucketsOf(counted, REQUEST_DURATION) };
}
