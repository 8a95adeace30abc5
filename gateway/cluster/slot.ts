import { type Family, sumOf } from '../../shared/counts.ts';
import type { Logger } from '../../shared/logger.ts';
import type { Stopping } from '../../shared/run.ts';
import { LONGEST_IDLE_MS } from '../../shared/server.ts';
import { BackOff } from './back-off.ts';
import { forkWorker, type WorkerEnd, type WorkerProcess } from './worker-process.ts';

/** Others take new connections meanwhile; those that it has are used once more, or close by themselves as they always do. */
const REPLACED: Stopping = { lameDuckMs: 0, lingerMs: LONGEST_IDLE_MS };

/** The place of one worker: a process that serves in it, always, and another one after it. */
export class Slot {
  readonly #number: number;
  readonly #logger: Logger;
  readonly #onCrash: () => void;
  readonly #backOff = new BackOff();
  /** Every process of this place that has not ended: the one that serves, and those that come or go. */
  readonly #processes = new Set<WorkerProcess>();
  readonly #dismissed = new Set<WorkerProcess>();
  /** What those counted that have ended, so that a total never falls. */
  #past: readonly Family[] = [];
  #current: WorkerProcess | undefined;
  /** Of the one that serves or did last. Who never served is not replaced: that start was somebody else's to judge. */
  #servingSince: number | undefined;
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

  /** What has been counted in this place since the start, by whoever was in it; the last half second may be missing. */
  counted(): Family[] {
    return sumOf([this.#past, ...[...this.#processes].map((process) => process.traffic()?.counted ?? [])]);
  }

  /**
   * Starts a worker that takes this place as soon as it serves; who has it until then ends what it has begun, and goes.
   * @returns where it serves
   * @throws what the new one said when it could not start; the old one stays then
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

  /** Stops all there is, for good. */
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
    this.#fill(performance.now() - this.#servingSince);
  }

  /** Sees to it that somebody serves here, after a while that grows with every worker that ends early. */
  #fill(servedMs: number): void {
    if (this.#current !== undefined || this.#starting !== undefined || this.#stopping) return;
    if (this.#servingSince === undefined) return;
    clearTimeout(this.#retry);
    const waitMs = this.#backOff.next(servedMs);
    this.#logger.warn({ worker: this.#number, waitMs }, 'worker starts again');
    this.#retry = setTimeout(() => this.renew().catch(() => {}), waitMs);
  }
}
