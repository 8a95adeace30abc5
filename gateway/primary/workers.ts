import { type Family, sumOf } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { MetricsSnapshot } from '../../shared/process/metrics.ts';
import type { Stopping } from '../../shared/process/run.ts';
import type { KeysOfMinute } from '../telemetry/key-watch.ts';
import { type FoundRequests, mergeFound, type RequestQuery } from '../telemetry/recent-requests.ts';
import type { WorkerState } from '../telemetry/state.ts';
import type { Channel } from './channel.ts';
import type { AskedOfPrimary, AskedOfWorker, Changed, WorkerReport } from './messages.ts';
import { Slot, type SlotOptions } from './slot.ts';
import type { WorkerProcess } from './worker-process.ts';

/**
 * Shorter than other gateways wait for this one, so that a hanging worker does not make the whole gateway seem missing.
 */
const LIST_WITHIN_MS = 700;

/** The workers of a gateway: a fixed number of slots, each with a process that serves clients. */
export class Workers {
  stopping = false;
  readonly #slots: readonly Slot[];
  readonly #logger: Logger;
  #hasBegun = false;
  /** Actions on all workers run one after the other: the start and every rolling restart. */
  #work: Promise<unknown> = Promise.resolve();
  #isRenewalWaiting = false;

  constructor(count: number, options: SlotOptions) {
    this.#slots = Array.from({ length: count }, (_, at) => new Slot(at + 1, options, () => this.#hasBegun));
    this.#logger = options.logger;
  }

  get serving(): number {
    return this.#serving.length;
  }

  /** The states of all slots, including those in which no process serves. */
  states(): WorkerState[] {
    return this.#slots.map((slot) => slot.state());
  }

  /** What each serving worker reports about the gateway's dependencies, at most half a second old. */
  processes(): WorkerReport[] {
    return this.#serving.flatMap(({ report }) => report ?? []);
  }

  channels(): Channel<AskedOfWorker, AskedOfPrimary>[] {
    return this.#serving.map(({ channel }) => channel);
  }

  /** All workers that have not ended: those that serve, start or stop. */
  all(): WorkerProcess[] {
    return this.#slots.flatMap(({ processes }) => [...processes]);
  }

  /**
   * Announces a change to all workers. Resolves when none acts on older data. Workers that do not confirm it are
   * killed.
   */
  async confirm(changed: Changed): Promise<void> {
    await Promise.all(this.all().map((worker) => worker.confirm(changed)));
  }

  /**
   * Starts all workers, and resolves when the first one serves. After that, a worker that cannot start counts as
   * crashed.
   * @returns their shared address
   * @throws the error of a worker that could not start before one served
   */
  async start(): Promise<string> {
    const starting = this.#slots.map((slot) => slot.start('first'));
    this.#work = Promise.allSettled(starting);
    const address = await Promise.race(starting);
    this.#hasBegun = true;
    return address;
  }

  /**
   * A rolling restart: each slot in turn gets a new process, and the old one ends once the new one serves. A call
   * during a restart makes another one follow.
   */
  renew(): void {
    if (this.#isRenewalWaiting) return;
    this.#isRenewalWaiting = true;
    this.#work = this.#work.then(() => {
      this.#isRenewalWaiting = false;
      return this.#renewEach();
    });
  }

  /** Stops all workers, even those that are still starting. */
  async stop(how: Stopping): Promise<void> {
    this.stopping = true;
    // If an operator ends this process early, its workers end with it.
    process.once('exit', () => this.kill());
    await Promise.all(this.#slots.map((slot) => slot.stop(how)));
  }

  kill(): void {
    this.stopping = true;
    for (const slot of this.#slots) slot.kill();
  }

  /** The sum of all counts since the start, including those of ended workers. */
  counted(): Family[] {
    return sumOf(this.#slots.map((slot) => slot.counted()));
  }

  /** Whether a serving worker makes local decisions. */
  get isLocal(): boolean {
    return this.processes().some(({ isLocal }) => isLocal);
  }

  /** The keys that each serving worker last refused because of a ban. */
  banned(): KeysOfMinute[] {
    return this.processes().map(({ banned }) => banned);
  }

  /** The metrics of the serving workers, with up-to-date counts. A worker that does not answer is left out. */
  async metrics(): Promise<MetricsSnapshot[]> {
    const reports = await Promise.all(this.#serving.map((worker) => worker.askReport()));
    return reports.flatMap((report) => (report?.metrics === undefined ? [] : [report.metrics]));
  }

  /** The last matching requests of the serving workers, the newest first, and the workers that did not answer. */
  async find(query: RequestQuery): Promise<FoundRequests> {
    const ask = async ({ number, channel }: WorkerProcess): Promise<FoundRequests> => {
      const requests = await channel.ask('requests', query, LIST_WITHIN_MS);
      if (requests === undefined) return { requests: [], missing: [`worker ${number}`] };
      return {
        requests: requests.map((one) => ({ ...one, gateway: { ...one.gateway, worker: number } })),
        missing: [],
      };
    };
    return mergeFound(await Promise.all(this.#serving.map(ask)), query);
  }

  get #serving(): WorkerProcess[] {
    return this.#slots.flatMap(({ current }) => current ?? []);
  }

  async #renewEach(): Promise<void> {
    if (this.stopping) return;
    this.#logger.info('rolling restart begins');
    try {
      for (const slot of this.#slots) {
        if (this.stopping) return;
        await slot.start('renewal');
      }
      this.#logger.info('rolling restart done');
    } catch {
      if (!this.stopping) this.#logger.error('rolling restart given up: the new worker did not start');
    }
  }
}
