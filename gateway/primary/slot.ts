import { setTimeout as sleep } from 'node:timers/promises';
import { type Family, sumOf } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { Stopping } from '../../shared/process/run.ts';
import type { WorkerState } from '../telemetry/state.ts';
import type { WorkerEnd, WorkerProcess } from './worker-process.ts';

/** Why a worker starts: as the first one of its slot, in place of a crashed one, or in place of one that serves. */
export type Reason = 'first' | 'replacement' | 'renewal';

export interface SlotOptions {
  readonly logger: Logger;
  launch(number: number, reason: Reason): WorkerProcess;
  /** How long a replaced worker may use its connections. Other workers accept new ones meanwhile. */
  readonly replacedMs: number;
  /** Called for every worker that ends unexpectedly. */
  onCrash(): void;
}

/** The slot of one worker. A process always serves in it; when that process ends, another one replaces it. */
export class Slot {
  readonly #number: number;
  readonly #options: SlotOptions;
  readonly #hasBegun: () => boolean;
  readonly #backOff = new BackOff();
  /** All processes of this slot that have not ended: the serving one, and those that are starting or stopping. */
  readonly processes = new Set<WorkerProcess>();
  /** The process that serves. */
  current: WorkerProcess | undefined;
  /** The counts of ended processes, so that totals never fall. */
  #past: readonly Family[] = [];
  /** When the current process began to serve, or when the last one ended. */
  #changedAt = new Date();
  #stopping = new AbortController();

  /** @param hasBegun whether a worker of any slot has served */
  constructor(number: number, options: SlotOptions, hasBegun: () => boolean) {
    this.#number = number;
    this.#options = options;
    this.#hasBegun = hasBegun;
  }

  state(): WorkerState {
    return {
      worker: this.#number,
      pid: this.current?.pid,
      since: this.#changedAt.toISOString(),
      silentMs: Math.round(this.current?.silentMs ?? 0),
    };
  }

  /** The counts of this slot since the start, over all its processes. The last half second may be missing. */
  counted(): Family[] {
    return sumOf([this.#past, ...[...this.processes].map(({ report }) => report?.counted ?? [])]);
  }

  /**
   * Starts a worker. Once it serves, the worker that served before finishes its requests and ends.
   * @returns the address of the new worker
   * @throws the error of a new worker that could not start; the old one then stays
   */
  async start(reason: Reason): Promise<string> {
    const { launch, logger, replacedMs } = this.#options;
    const worker = launch(this.#number, reason);
    this.processes.add(worker);
    void worker.ended.then((end) => this.#hasEnded(worker, end, reason));
    const address = await worker.serving;
    const before = this.current;
    this.current = worker;
    this.#changedAt = new Date();
    logger.info({ worker: this.#number, pid: worker.pid }, 'worker serves');
    await before?.stop({ lameDuckMs: 0, lingerMs: replacedMs });
    return address;
  }

  /** Stops all processes for good. */
  async stop(how: Stopping): Promise<void> {
    this.#stopping.abort();
    await Promise.all([...this.processes].map((worker) => worker.stop(how)));
  }

  kill(): void {
    this.#stopping.abort();
    for (const worker of this.processes) worker.kill();
  }

  #hasEnded(worker: WorkerProcess, end: WorkerEnd, reason: Reason): void {
    const { logger, onCrash } = this.#options;
    this.#past = sumOf([this.#past, worker.report?.counted ?? []]);
    this.processes.delete(worker);
    const fields = { worker: this.#number, pid: worker.pid, ...end, said: end.said || undefined };
    if (this.#stopping.signal.aborted || worker.isStopping) {
      logger.info(fields, 'worker stopped');
      return;
    }
    // If no worker has ever served, there is no replacement: the start of the gateway fails.
    if (!this.#hasBegun()) return;
    logger.error(fields, 'worker ended');
    onCrash();
    if (this.current !== worker && reason !== 'first') return;
    const servedMs = Date.now() - this.#changedAt.getTime();
    this.current = undefined;
    this.#changedAt = new Date();
    void this.#refill(servedMs);
  }

  /** Starts workers until one serves. The waits in between grow with every early end. */
  async #refill(servedMs: number): Promise<void> {
    const { signal } = this.#stopping;
    for (let lastedMs = servedMs; this.current === undefined && !signal.aborted; lastedMs = 0) {
      const waitMs = this.#backOff.next(lastedMs);
      this.#options.logger.warn({ worker: this.#number, waitMs }, 'worker starts again');
      await sleep(waitMs, undefined, { signal }).catch(() => {});
      if (this.current === undefined && !signal.aborted) await this.start('replacement').catch(() => {});
    }
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
