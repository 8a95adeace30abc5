import type { ChildProcess } from 'node:child_process';
import cluster, { type Worker } from 'node:cluster';
import { compiledFolder } from '../../shared/process/compile-cache.ts';
import type { Stopping } from '../../shared/process/run.ts';
import type { Verdict } from '../limiter/limiter.ts';
import type { KeyRefusal } from '../telemetry/key-refusals.ts';
import type { Happening } from '../webhooks/message.ts';
import {
  type AskedOfPrimary,
  type AskedOfWorker,
  type CallAnswer,
  type Changed,
  Channel,
  type LoadedKey,
  type LocalQuestion,
  type ReleaseOrder,
  type SaveOrder,
  type StartOrder,
  type StorageCall,
  type WorkerReport,
} from './channel.ts';
import { ASKS_FOR_FILES, type FilesMessage } from './last-good-files.ts';
import { mark } from './left-behind.ts';

export interface WorkerEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** The end of the worker's standard error. */
  readonly said: string;
}

/** Answers the questions of workers without Redis. */
export interface AnswersWithoutRedis {
  load(worker: WorkerProcess, id: string): Promise<LoadedKey | undefined>;
  save(order: SaveOrder): Promise<boolean>;
  call(call: StorageCall): Promise<CallAnswer>;
}

/** What a worker gets from its primary. */
export interface WorkerOptions {
  readonly port: number;
  order(): StartOrder;
  /** The texts of the settings' files, if one of the files is bad now. */
  files(): ReadonlyMap<string, string> | undefined;
  onReport(report: WorkerReport): void;
  onHappened(happening: Happening): void;
  /** A local decision for all workers. */
  decide(name: 'decide' | 'peek', question: LocalQuestion): Promise<Verdict | undefined>;
  refusals(id: string): Promise<readonly KeyRefusal[] | undefined> | undefined;
  readonly withoutRedis?: AnswersWithoutRedis | undefined;
}

/** A worker that sends nothing for this long hangs. */
const HANGS_AFTER_S = 10;
/** The limit for a worker that still loads its code, during which it sends nothing. */
const LOADS_WITHIN_S = 60;
/** How long a change waits for a worker. A starting worker needs longer, because it has much to load. */
const CONFIRMS_WITHIN_MS = 1_000;
const CONFIRMS_AT_START_WITHIN_MS = 10_000;
/** Longer than a server needs to stop after the lame-duck and linger times. */
const STOP_WITHIN_MS = 20_000;
/** The most characters that are kept of its standard error: a log line of that length is written atomically. */
const MAX_SAID = 2_000;

/** Settings for the primary alone: the operators' address and token, and the receiver of webhooks. */
const NOT_FOR_WORKERS = {
  ADMIN_HOST: undefined,
  ADMIN_PORT: undefined,
  ADMIN_TOKEN: undefined,
  ADMIN_TOKEN_FILE: undefined,
  WEBHOOK_URL: undefined,
  WEBHOOK_SECRET: undefined,
  WEBHOOK_SECRET_FILE: undefined,
};

/**
 * The workers accept from one shared socket when they have time. Distribution by the primary is more even, but costs 60
 * µs per connection, and a connection on its way to a killed worker would never be answered.
 */
cluster.schedulingPolicy = cluster.SCHED_NONE;

const KILLED: CallAnswer = { fault: 'unavailable', message: 'The worker was killed.', shown: undefined };

/** A worker as its primary sees it: this program again, with the worker's number as its argument. */
export class WorkerProcess {
  /** Its number among the workers. Its replacement has the same number. */
  readonly number: number;
  /** The address for clients, once the worker serves. Rejects with the worker's error if it ends before. */
  readonly serving: Promise<string>;
  readonly ended: Promise<WorkerEnd>;
  readonly channel: Channel<AskedOfWorker, AskedOfPrimary>;
  /** The last report, which stays after the process has ended. */
  report: WorkerReport | undefined;
  isStopping = false;
  /** Whether the worker has asked for a key, and may hold one. */
  hasKeys = false;
  readonly #worker: Worker;
  readonly #stderr: ReturnType<typeof keepErrors>;
  /** Whether the worker has asked how to start. From then on it reads data that may change. */
  #hasStarted = false;
  #serves = false;
  /** Whether the worker may have connections, which is shortly before it reports that it serves. */
  #listens = false;
  /** Set so that a late message of a killed worker cannot undo a newer change. */
  #isKilled = false;

  constructor(number: number, options: WorkerOptions) {
    const { port, order, onReport, onHappened, decide, refusals, withoutRedis } = options;
    const files = options.files();
    this.number = number;
    // JSON has no undefined, which removes a field of a record.
    const serialization = 'advanced';
    cluster.setupPrimary({ args: [String(number)], stdio: ['ignore', 'inherit', 'pipe', 'ipc'], serialization });
    // One arena of malloc is enough: only the main thread allocates much, and more arenas would keep 10 MB.
    const own = { ...mark(), PORT: port, NODE_COMPILE_CACHE: compiledFolder(), MALLOC_ARENA_MAX: 1 };
    const asks = files && { [ASKS_FOR_FILES]: '1' };
    this.#worker = cluster.fork({ ...NOT_FOR_WORKERS, ...own, ...asks });
    this.#worker.once('listening', () => {
      this.#listens = true;
    });
    // If a message or signal fails, the process has ended, and its end is handled elsewhere.
    this.#worker.on('error', () => {});
    this.#worker.on('message', (message: Partial<FilesMessage>) => {
      if (files !== undefined && message?.files === 'please')
        this.#worker.send({ files } satisfies FilesMessage, () => {});
    });
    this.#stderr = keepErrors(this.#worker.process);
    this.channel = new Channel<AskedOfWorker, AskedOfPrimary>(this.#worker, {
      start: () => {
        this.#hasStarted = true;
        return order();
      },
      report: (report): undefined => {
        if (report === undefined) return;
        this.report = report;
        onReport(report);
      },
      happened: (happening) => void onHappened(happening),
      decide: (question) => decide('decide', question),
      peek: (question) => decide('peek', question),
      refusals: (id) => refusals(id)?.catch(() => undefined),
      load: (id) => {
        this.hasKeys = true;
        return withoutRedis?.load(this, id);
      },
      save: (states) => (this.#isKilled ? false : (withoutRedis?.save(states) ?? false)),
      call: (call) => (this.#isKilled ? KILLED : (withoutRedis?.call(call) ?? KILLED)),
    });
    this.#worker.process.once('exit', () => {
      this.#isKilled = true;
    });
    this.ended = endOf(this.#worker.process, this.#stderr.said);
    this.serving = this.#untilServing();
    this.#killWhenSilent();
  }

  get silentMs(): number {
    return performance.now() - this.channel.receivedAt;
  }

  get pid(): number | undefined {
    return this.#worker.process.pid;
  }

  /**
   * Lets a serving worker finish its requests, and kills it after a timeout; kills any other worker at once. Resolves
   * when the worker is gone.
   */
  async stop(how: Stopping): Promise<void> {
    this.isStopping = true;
    const { lameDuckMs, lingerMs = lameDuckMs } = how;
    const timer = setTimeout(() => this.kill(), lameDuckMs + lingerMs + STOP_WITHIN_MS);
    if (this.#listens) await this.serving.catch(() => {});
    if (!this.#serves) this.kill();
    else if (this.#worker.isConnected()) this.#worker.send({ stop: how }, () => {});
    await this.ended;
    clearTimeout(timer);
  }

  kill(): void {
    this.#isKilled = true;
    this.#worker.process.kill('SIGKILL');
  }

  /** The worker's present state with its metrics; undefined if it does not answer in time. */
  async askReport(): Promise<WorkerReport | undefined> {
    const report = await this.channel.ask('report', undefined);
    if (report !== undefined) this.report = report;
    return report;
  }

  /** Announces a change. Resolves when the worker no longer acts on older data, or is gone. */
  async confirm(changed: Changed): Promise<void> {
    if (this.#hasStarted) await this.#insist('changed', changed, 'It did not confirm a change in time.');
  }

  /** Makes the worker send the state of a key and forget the key. Resolves when it no longer decides on the key. */
  async release(order: ReleaseOrder): Promise<void> {
    if (this.hasKeys)
      await this.#insist('release', order, 'It did not release a key in time. Its last counts are lost.');
  }

  /** Makes the worker send all states that are not stored. */
  async flush(): Promise<void> {
    if (this.hasKeys) await this.channel.ask('flush', undefined);
  }

  async #insist<Name extends 'changed' | 'release'>(
    name: Name,
    question: AskedOfWorker[Name][0],
    complaint: string,
  ): Promise<void> {
    const withinMs = this.#serves ? CONFIRMS_WITHIN_MS : CONFIRMS_AT_START_WITHIN_MS;
    if ((await this.channel.insist(name, question, withinMs)) === true) return;
    // A disconnected worker ends by itself. If it misses several changes, one complaint is enough.
    if (this.#worker.isConnected() && !this.#isKilled) this.#stderr.add(complaint);
    this.kill();
    await this.ended;
  }

  async #untilServing(): Promise<string> {
    const { promise: served, resolve, reject } = Promise.withResolvers<string>();
    this.#worker.on('message', ({ gateway }: { gateway?: string }) => gateway !== undefined && resolve(gateway));
    void this.ended.then(({ code, signal, said }) =>
      reject(new Error(said || `A worker ended before it served: ${signal ?? `exit status ${code}`}.`)),
    );
    const address = await served;
    this.#serves = true;
    this.#stderr.passOn();
    return address;
  }

  /** Counts seconds instead of measuring time: a stall of this process counts as one second, however long it lasts. */
  #killWhenSilent(): void {
    let received = 0;
    let silentSeconds = 0;
    const timer = setInterval(() => {
      silentSeconds = this.channel.received === received ? silentSeconds + 1 : 0;
      received = this.channel.received;
      if (silentSeconds < (received === 0 ? LOADS_WITHIN_S : HANGS_AFTER_S)) return;
      this.#stderr.add(`It sent nothing for ${silentSeconds} s.`);
      this.kill();
    }, 1_000).unref();
    void this.ended.then(() => clearInterval(timer));
  }
}

function keepErrors({ stderr }: ChildProcess) {
  let said = '';
  const add = (text: string) => {
    said = (said + text).slice(-MAX_SAID);
  };
  stderr?.setEncoding('utf8').on('data', add);
  return {
    add,
    said: () => said.trim(),
    /** From now on, also writes to this process's standard error. */
    passOn: () => void stderr?.on('data', (text: string) => process.stderr.write(text)),
  };
}

function endOf(child: ChildProcess, said: () => string): Promise<WorkerEnd> {
  const { promise, resolve } = Promise.withResolvers<WorkerEnd>();
  child.once('close', (code, signal) => resolve({ code, signal, said: said() }));
  child.once('error', (fault) => {
    if (child.pid === undefined) resolve({ code: null, signal: null, said: fault.message });
  });
  return promise;
}
