import { LONGEST_IDLE_MS } from '../../shared/http/server.ts';
import { type Family, sumOf } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { Stopping } from '../../shared/process/run.ts';
import type { WorkerState } from '../telemetry/watched-traffic.ts';
import { forkWorker, type WorkerEnd, type WorkerProcess } from './worker-process.ts';

/**
 * Other workers accept new connections meanwhile. The old worker's connections are used once more, or close after their
 * idle time.
 */
const REPLACED: Stopping = { lameDuckMs: 0, lingerMs: LONGEST_IDLE_MS };

/** The slot of one worker. A process always serves in it; when one ends, another replaces it. */
export class Slot {
  readonly #number: number;
  readonly #logger: Logger;
  readonly #onCrash: () => void;
  readonly #backOff = new BackOff();
  /** All processes of this slot that have not ended: the serving one, and those that start or stop. */
  readonly #processes = new Set<WorkerProcess>();
  readonly #dismissed = new Set<WorkerProcess>();
  /** The counts of ended processes, so that totals never fall. */
  #past: readonly Family[] = [];
  #current: WorkerProcess | undefined;
  /**
   * When the current or last process began to serve. Without a first success there is no replacement: the caller of
   * that start handles it.
   */
  #servingSince: number | undefined;
  /** When the current process began to serve, or the last one ended. */
  #changedAt = new Date();
  #starting: Promise<string> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #stopping = false;

  constructor(number: number, logger: Logger, onCrash: () => void) {
    this.#number = number;
    this.#logger = logger;
    this.#onCrash = onCrash;
  }

  /** The process that serves. */
  get current(): WorkerProcess | undefined {
    return this.#current;
  }

  state(): WorkerState {
    return { worker: this.#number, pid: this.#current?.pid, since: this.#changedAt.toISOString() };
  }

  /** The counts of this slot since the start, over all its processes. The last half second may be missing. */
  counted(): Family[] {
    return sumOf([this.#past, ...[...this.#processes].map((process) => process.traffic()?.counted ?? [])]);
  }

  /**
   * Starts a new worker. Once it serves, the old one finishes its requests and ends.
   * @returns the address of the new worker
   * @throws the new worker's error if it could not start; the old one then stays
   */
  async renew(): Promise<string> {
    await this.#starting?.catch(() => {});
    clearTimeout(this.#retry);
    const old = this.#current;
    const address = await this.#start();
    if (old !== undefined && this.#processes.has(old)) {
      this.#dismissed.add(old);
      await old.stop(REPLACED);
    }
    return address;
  }

  /** Stops all processes for good. */
  async stop(how: Stopping): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#retry);
    await Promise.all([...this.#processes].map((process) => process.stop(how)));
  }

  kill(): void {
    this.#stopping = true;
    for (const process of this.#processes) process.kill();
  }

  async #start(): Promise<string> {
    try {
      this.#starting = this.#launch();
      return await this.#starting;
    } finally {
      this.#starting = undefined;
      this.#fill(0);
    }
  }

  async #launch(): Promise<string> {
    const process = forkWorker(this.#number);
    this.#processes.add(process);
    void process.ended.then((end) => this.#hasEnded(process, end));
    const address = await process.serving;
    this.#current = process;
    this.#changedAt = new Date();
    this.#servingSince = performance.now();
    this.#logger.info({ worker: this.#number, pid: process.pid }, 'worker serves');
    return address;
  }

  #hasEnded(process: WorkerProcess, end: WorkerEnd): void {
    this.#past = sumOf([this.#past, process.traffic()?.counted ?? []]);
    this.#processes.delete(process);
    const told = { worker: this.#number, pid: process.pid, ...end, said: end.said || undefined };
    if (this.#stopping || this.#dismissed.delete(process)) {
      this.#logger.info(told, 'worker stopped');
      return;
    }
    if (this.#servingSince === undefined) return;
    this.#logger.error(told, 'worker ended');
    this.#onCrash();
    if (this.#current !== process) return;
    this.#current = undefined;
    this.#changedAt = new Date();
    this.#fill(performance.now() - this.#servingSince);
  }

  /** Makes sure that a worker serves here, after a wait that grows with every early end. */
  #fill(servedMs: number): void {
    if (this.#current !== undefined || this.#starting !== undefined || this.#stopping) return;
    if (this.#servingSince === undefined) return;
    clearTimeout(this.#retry);
    const waitMs = this.#backOff.next(servedMs);
    this.#logger.warn({ worker: this.#number, waitMs }, 'worker starts again');
    this.#retry = setTimeout(() => this.renew().catch(() => {}), waitMs);
  }
}

const FIRST_MS = 100;
const LONGEST_MS = 30_000;
/** After serving this long, a worker counts as healthy and the back-off starts again. */
const HEALTHY_MS = 30_000;

/** The wait before a worker is restarted. It doubles with each early end, up to half a minute. */
export class BackOff {
  #nextMs = FIRST_MS;

  /** @param servedMs how long the ended worker served; 0 if it never did */
  next(servedMs: number): number {
    const waitMs = servedMs >= HEALTHY_MS ? FIRST_MS : this.#nextMs;
    this.#nextMs = Math.min(2 * waitMs, LONGEST_MS);
    return waitMs;
  }
}
