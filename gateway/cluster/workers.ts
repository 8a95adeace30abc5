import { type Family, sumOf } from '../../shared/counts.ts';
import type { Logger } from '../../shared/logger.ts';
import type { MetricsSnapshot } from '../../shared/metrics.ts';
import type { Stopping } from '../../shared/run.ts';
import { type DecisionQuery, type DecisionReport, newestFirst } from '../telemetry/recent-decisions.ts';
import { Slot } from './slot.ts';

/** The workers of a gateway: so many places, each with a process that serves clients. */
export class Workers {
  readonly #slots: readonly Slot[];
  readonly #logger: Logger;
  #stopping = false;
  /** What happens to all of them, one after the other: the start, and every rolling restart. */
  #work: Promise<unknown> = Promise.resolve();
  #isRenewalWaiting = false;

  /** @param onCrash called for every worker that ends without being asked to */
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

  /**
   * Starts them all.
   * @returns the address that they share
   * @throws what the first said that could not start; the others are ended then
   */
  async start(): Promise<string> {
    const starting = Promise.all(this.#slots.map((slot) => slot.renew()));
    this.#work = starting.catch(() => this.#kill());
    const [address = ''] = await starting;
    return address;
  }

  /**
   * A rolling restart: one place after the other gets a new process, and the old one goes once the new one serves. Asked
   * for while one is under way, it is done again after that.
   */
  renew(): void {
    if (this.#isRenewalWaiting) return;
    this.#isRenewalWaiting = true;
    this.#work = this.#work.then(() => {
      this.#isRenewalWaiting = false;
      return this.#renewEach();
    });
  }

  /** Stops them all, and whoever is still starting. */
  async stop(how: Stopping): Promise<void> {
    this.#stopping = true;
    // An operator who does not want to wait ends this process, and with it what it looks after.
    process.once('exit', () => this.#kill());
    await Promise.all(this.#slots.map((slot) => slot.stop(how)));
  }

  /** What all of them have counted since the start, those that are gone included: one sum over all. */
  counted(): Family[] {
    return sumOf(this.#slots.map((slot) => slot.counted()));
  }

  /** Whether one of those that serve decides in Redis' place. */
  get isLocal(): boolean {
    return this.#slots.some(({ current }) => current?.traffic()?.isLocal === true);
  }

  /** How those that serve are; a worker that does not say is left out. */
  async metrics(): Promise<MetricsSnapshot[]> {
    const serving = this.#slots.flatMap(({ current }) => current ?? []);
    const snapshots = await Promise.all(serving.map((worker) => worker.metrics()));
    return snapshots.filter((snapshot) => snapshot !== undefined);
  }

  /** The last decisions of those that serve, the newest first. */
  async find(query: DecisionQuery): Promise<DecisionReport[]> {
    const serving = this.#slots.flatMap(({ current }) => current ?? []);
    const found = await Promise.all(serving.map((worker) => worker.decisions(query)));
    return found.flat().sort(newestFirst);
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
