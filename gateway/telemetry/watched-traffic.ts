import type { Family } from '../../shared/process/counts.ts';
import type { RedisState } from '../stores/stores.ts';
import type { CoreState } from '../upstream/core.ts';
import { type MinuteSource, RecentMinutes } from './recent-minutes.ts';

/** The counts of the processes that serve clients, their last hour, and their mode of decision. */
export interface WatchedTraffic {
  readonly since: Date;
  counted(): readonly Family[];
  readonly mode: ModeWatch;
  readonly minutes: RecentMinutes;
  /** The processes beside this one that serve clients; undefined if this one does. */
  readonly workers: (() => WorkersState) | undefined;
  /** What each process that serves clients sees of the dependencies. */
  processes(): readonly ProcessState[];
  stop(): void;
}

export interface WorkersState {
  readonly serving: number;
  readonly wanted: number;
  readonly each: readonly WorkerState[];
}

export interface WorkerState {
  readonly worker: number;
  /** Undefined while no process serves in its place. */
  readonly pid: number | undefined;
  /** When it began to serve, or the one before it ended. */
  readonly since: string;
  /** For how long it has said nothing, in ms. */
  readonly silentMs: number;
}

/** A core as one process sees it. */
export type SeenCore = CoreState;

/** What a process that serves clients sees of the gateway's dependencies. */
export interface ProcessState {
  readonly cores: readonly CoreState[];
  /** Undefined if decisions are embedded. */
  readonly redis: RedisState | undefined;
}

export interface TrafficSource extends MinuteSource {
  /** Whether any of the processes decides locally although it should ask Redis. */
  isLocal(): boolean;
  readonly workers?: WatchedTraffic['workers'];
  readonly processes: WatchedTraffic['processes'];
}

/** Watches the traffic until it is stopped. */
export function watchTraffic({ counted, banned, isLocal, workers, processes }: TrafficSource): WatchedTraffic {
  const minutes = new RecentMinutes({ counted, banned });
  const mode = new ModeWatch(isLocal);
  return {
    since: new Date(),
    counted,
    mode,
    minutes,
    workers,
    processes,
    stop() {
      minutes.stop();
      mode.stop();
    },
  };
}

const LOOK_EVERY_MS = 500;

/** Watches whether decisions are local because Redis is away, and since when. */
class ModeWatch {
  readonly #isLocalNow: () => boolean;
  readonly #timer: NodeJS.Timeout;
  #isLocal: boolean;
  #since = new Date();

  constructor(isLocalNow: () => boolean) {
    this.#isLocalNow = isLocalNow;
    this.#isLocal = isLocalNow();
    this.#timer = setInterval(() => this.#look(), LOOK_EVERY_MS).unref();
  }

  get isLocal(): boolean {
    this.#look();
    return this.#isLocal;
  }

  /** The last change, or the start. */
  get since(): Date {
    this.#look();
    return this.#since;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const isLocal = this.#isLocalNow();
    if (isLocal === this.#isLocal) return;
    this.#isLocal = isLocal;
    this.#since = new Date();
  }
}
