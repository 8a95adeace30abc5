import { type Family, sumOf } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { MetricsSnapshot } from '../../shared/process/metrics.ts';
import type { Stopping } from '../../shared/process/run.ts';
import type { KeysOfMinute } from '../telemetry/key-watch.ts';
import { type DecisionQuery, type DecisionReport, newestFirst } from '../telemetry/recent-decisions.ts';
import type { ProcessState, WorkerState } from '../telemetry/watched-traffic.ts';
import { Slot } from './place.ts';

/** The workers of a gateway: a fixed number of slots, each with a process that serves clients. */
export class Workers {
  readonly #slots: readonly Slot[];
  readonly #logger: Logger;
  #stopping = false;
  /** Actions on all workers run one after the other: the start, and every rolling restart. */
  #work: Promise<unknown> = Promise.resolve();
  #isRenewalWaiting = false;

  /** @param onCrash called for every worker that ends unexpectedly */
  constructor(count: number, logger: Logger, onCrash: () => void) {
    this.#slots = Array.from({ length: count }, (_, at) => new Slot(at + 1, logger, onCrash));
    this.#logger = logger;
  }

  get stopping(): boolean {
    return this.#stopping;
  }

  get serving(): number {
    return this.#slots.filter(({ current }) => current !== undefined).length;
  }

  /** All slots, whether a process serves in them or not. */
  states(): WorkerState[] {
    return this.#slots.map((slot) => slot.state());
  }

  /** What each serving worker sees of the dependencies, as of the last half second. */
  processes(): ProcessState[] {
    return this.#slots.flatMap(({ current }) => current?.traffic() ?? []);
  }

  /**
   * Starts them all.
   * @returns their shared address
   * @throws the first error of a worker that could not start; the others are then killed
   */
  async start(): Promise<string> {
    const starting = Promise.all(this.#slots.map((slot) => slot.renew()));
    this.#work = starting.catch(() => this.#kill());
    const [address = ''] = await starting;
    return address;
  }

  /**
   * A rolling restart: each slot in turn gets a new process, and the old one ends once the new one serves. A request
   * during a restart starts another one after it.
   */
  renew(): void {
    if (this.#isRenewalWaiting) return;
    this.#isRenewalWaiting = true;
    this.#work = this.#work.then(() => {
      this.#isRenewalWaiting = false;
      return this.#renewEach();
    });
  }

  /** Stops them all, also those that are still starting. */
  async stop(how: Stopping): Promise<void> {
    this.#stopping = true;
    // If an operator ends this process early, its workers end with it.
    process.once('exit', () => this.#kill());
    await Promise.all(this.#slots.map((slot) => slot.stop(how)));
  }

  /** The sum of all counts since the start, ended workers included. */
  counted(): Family[] {
    return sumOf(this.#slots.map((slot) => slot.counted()));
  }

  /** Whether a serving worker makes local decisions. */
  get isLocal(): boolean {
    return this.#slots.some(({ current }) => current?.traffic()?.isLocal === true);
  }

  /** The keys that each serving worker last refused because of a ban. */
  banned(): KeysOfMinute[] {
    return this.#slots.flatMap(({ current }) => current?.traffic()?.banned ?? []);
  }

  /** The metrics of the serving workers. A worker that does not answer is left out. */
  async metrics(): Promise<MetricsSnapshot[]> {
    const serving = this.#slots.flatMap(({ current }) => current ?? []);
    const snapshots = await Promise.all(serving.map((worker) => worker.metrics()));
    return snapshots.filter((snapshot) => snapshot !== undefined);
  }

  /** The last decisions of the serving workers, the newest first. */
  async find(query: DecisionQuery): Promise<DecisionReport[]> {
    const serving = this.#slots.flatMap(({ current }) => current ?? []);
    const found = await Promise.all(serving.map((worker) => worker.decisions(query)));
    return found.flat().sort(newestFirst).slice(0, query.limit);
  }

  async #renewEach(): Promise<void> {
    if (this.#stopping) return;
    this.#logger.info('rolling restart begins');
    try {
      for (const slot of this.#slots) {
        if (this.#stopping) return;
        await slot.renew();
      }
      this.#logger.info('rolling restart done');
    } catch {
      if (!this.#stopping) this.#logger.error('rolling restart given up: the new worker did not start');
    }
  }

  #kill(): void {
    for (const slot of this.#slots) slot.kill();
  }
}
