import { setTimeout as sleep } from 'node:timers/promises';
import { type Family, sumOf } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { Stopping } from '../../shared/process/run.ts';
import { type FoundRequests, mergeFound, type RequestQuery } from '../telemetry/recent-requests.ts';
import type { WorkerState } from '../telemetry/state.ts';
import type { AskedOfPrimary, AskedOfWorker, Changed, Channel, Reason, WorkerReport } from './channel.ts';
import type { WorkerEnd, WorkerProcess } from './worker-process.ts';

/** Other gateways wait longer than this, so that a hanging worker does not make the whole gateway seem missing. */
const LIST_WITHIN_MS = 700;

/** The workers of a gateway: a fixed number of slots, each with a process that serves clients. */
export class Workers {
  stopping = false;
  readonly #slots: readonly Slot[];
  readonly #logger: Logger;
  #hasBegun = false;
  /** The start and every rolling restart act on all workers, so they run one after the other. */
  #work: Promise<unknown> = Promise.resolve();
  #isRenewalWaiting = false;

  constructor(count: number, options: SlotOptions) {
    this.#slots = Array.from({ length: count }, (_, at) => new Slot(at + 1, options, () => this.#hasBegun));
    this.#logger = options.logger;
  }

  get serving(): number {
    return this.#serving.length;
  }

  /** The states of all slots, including those without a serving process. */
  states(): WorkerState[] {
    return this.#slots.map((slot) => slot.state());
  }

  /** The latest report of each serving worker, at most half a second old. */
  processes(): WorkerReport[] {
    return this.#serving.flatMap(({ report }) => report ?? []);
  }

  /**
   * The channels of the workers that have clients: the serving ones, and those that are finishing their connections.
   */
  channels(): Channel<AskedOfWorker, AskedOfPrimary>[] {
    const serving = this.#serving;
    return this.all()
      .filter((worker) => worker.isStopping || serving.includes(worker))
      .map(({ channel }) => channel);
  }

  /** All workers that have not exited, whether starting, serving or stopping. */
  all(): WorkerProcess[] {
    return this.#slots.flatMap(({ processes }) => [...processes]);
  }

  /** Resolves when no worker acts on data older than a change. Workers that do not confirm the change are killed. */
  async confirm(changed: Changed): Promise<void> {
    await Promise.all(this.all().map((worker) => worker.confirm(changed)));
  }

  /**
   * Starts all workers, and resolves when the first one is serving. After that, a worker that cannot start counts as
   * crashed.
   * @returns their shared address
   * @throws the error of a worker that cannot start before any is serving
   */
  async start(): Promise<string> {
    const starting = this.#slots.map((slot) => slot.start('first'));
    this.#work = Promise.allSettled(starting);
    const address = await Promise.race(starting);
    this.#hasBegun = true;
    return address;
  }

  /**
   * A rolling restart: each slot in turn gets a new process, and the old one exits once the new one is serving. A call
   * during a restart starts another restart afterwards.
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
    // If an operator forces this process to exit early, its workers exit with it.
    process.once('exit', () => this.kill());
    await Promise.all(this.#slots.map((slot) => slot.stop(how)));
  }

  kill(): void {
    this.stopping = true;
    for (const slot of this.#slots) slot.kill();
  }

  /** The sum of all counts since the start, including those of workers that have exited. */
  counted(): Family[] {
    return sumOf(this.#slots.map((slot) => slot.counted()));
  }

  /** Whether a serving worker makes local decisions. */
  get isLocal(): boolean {
    return this.processes().some(({ isLocal }) => isLocal);
  }

  /** The metrics of the serving workers, with up-to-date counts. A worker that does not answer is left out. */
  async metrics(): Promise<(readonly Family[])[]> {
    const reports = await Promise.all(this.#serving.map((worker) => worker.askReport()));
    return reports.flatMap((report) => (report?.metrics === undefined ? [] : [report.metrics]));
  }

  /** The last matching requests of the serving workers, the newest first, and the workers that did not answer. */
  async find(query: RequestQuery): Promise<FoundRequests> {
    const ask = async ({ current, changedAt }: Slot): Promise<FoundRequests> => {
      if (current === undefined) return { requests: [], missing: [], since: changedAt.getTime() };
      const { number, channel, startedAt } = current;
      const found = await channel.ask('requests', query, LIST_WITHIN_MS);
      if (found === undefined) return { requests: [], missing: [`worker ${number}`], since: startedAt };
      const requests = found.requests.map((one) => ({ ...one, gateway: { ...one.gateway, worker: number } }));
      return { requests, missing: [], since: Math.max(startedAt, found.keptSince) };
    };
    return mergeFound(await Promise.all(this.#slots.map(ask)), query);
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
      if (!this.stopping) this.#logger.error('rolling restart aborted: the new worker did not start');
    }
  }
}

interface SlotOptions {
  readonly logger: Logger;
  launch(number: number, reason: Reason): WorkerProcess;
  /** How long a replaced worker may keep its connections. Other workers accept the new ones. */
  readonly replacedMs: number;
  /** Called for every worker that exits unexpectedly. */
  onCrash(): void;
  /** Called with a worker that has been replaced, before it is stopped. */
  onReplaced(worker: WorkerProcess): void;
}

/** The slot of one worker. When its process exits, another one replaces it. */
class Slot {
  readonly #number: number;
  readonly #options: SlotOptions;
  readonly #hasBegun: () => boolean;
  #waitMs = 0;
  #hasExited = false;
  /** All processes in this slot that have not exited: the serving one, and those that are starting or stopping. */
  readonly processes = new Set<WorkerProcess>();
  /** The process that serves. */
  current: WorkerProcess | undefined;
  /** The counts of processes that have exited, so that totals never fall. */
  #past: readonly Family[] = [];
  /** When the current process began to serve, or when the last one exited. */
  changedAt = new Date();
  #stopping = new AbortController();

  /** @param hasBegun whether a worker in any slot has ever served clients */
  constructor(number: number, options: SlotOptions, hasBegun: () => boolean) {
    this.#number = number;
    this.#options = options;
    this.#hasBegun = hasBegun;
  }

  state(): WorkerState {
    return {
      worker: this.#number,
      pid: this.current?.pid,
      isStarting: this.current === undefined && !this.#hasExited,
      since: this.changedAt.toISOString(),
      silentMs: Math.round(this.current?.silentMs ?? 0),
    };
  }

  /** The counts of this slot since the start, over all its processes. The last half second may be missing. */
  counted(): Family[] {
    return sumOf([this.#past, ...[...this.processes].map(({ report }) => report?.counted ?? [])]);
  }

  /**
   * Starts a worker. Once it is serving, its predecessor finishes its requests and exits.
   * @returns the address of the new worker
   * @throws the error of a new worker that cannot start; its predecessor then stays
   */
  async start(reason: Reason): Promise<string> {
    const { launch, logger, onReplaced, replacedMs } = this.#options;
    const worker = launch(this.#number, reason);
    this.processes.add(worker);
    void worker.ended.then((end) => this.#hasEnded(worker, end, reason));
    const address = await worker.serving;
    const before = this.current;
    this.current = worker;
    this.changedAt = new Date();
    logger.info({ worker: this.#number, pid: worker.pid }, 'worker is serving');
    if (before !== undefined) onReplaced(before);
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
    this.#hasExited = true;
    this.#past = sumOf([this.#past, worker.report?.counted ?? []]);
    this.processes.delete(worker);
    const fields = { worker: this.#number, pid: worker.pid, ...end, said: end.said || undefined };
    if (this.#stopping.signal.aborted || worker.isStopping) {
      logger.info(fields, 'worker stopped');
      return;
    }
    // If no worker has ever served, none is replaced and the gateway fails to start.
    if (!this.#hasBegun()) return;
    logger.error(fields, 'worker exited');
    onCrash();
    if (this.current !== worker && reason !== 'first') return;
    const servedMs = Date.now() - this.changedAt.getTime();
    this.current = undefined;
    this.changedAt = new Date();
    void this.#refill(servedMs);
  }

  /** Starts workers until one is serving. The waits in between grow with every early exit. */
  async #refill(servedMs: number): Promise<void> {
    const { signal } = this.#stopping;
    for (let lastedMs = servedMs; this.current === undefined && !signal.aborted; lastedMs = 0) {
      this.#waitMs = nextWait(this.#waitMs, lastedMs);
      this.#options.logger.warn({ worker: this.#number, waitMs: this.#waitMs }, 'worker restarts');
      await sleep(this.#waitMs, undefined, { signal }).catch(() => {});
      if (this.current === undefined && !signal.aborted) await this.start('replacement').catch(() => {});
    }
  }
}

const FIRST_MS = 100;
const LONGEST_MS = 30_000;
/** After serving this long, a worker counts as healthy, and the back-off is reset. */
const HEALTHY_MS = 30_000;

/**
 * The wait before a worker is restarted. It doubles with each early exit, up to half a minute.
 * @param before the last wait; 0 for none
 * @param servedMs how long the worker that exited had served; 0 if it never did
 */
export const nextWait = (before: number, servedMs: number): number =>
  before === 0 || servedMs >= HEALTHY_MS ? FIRST_MS : Math.min(2 * before, LONGEST_MS);
