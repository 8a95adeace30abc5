import type { ChildProcess } from 'node:child_process';
import cluster, { type Worker } from 'node:cluster';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { compiledFolder } from '../../shared/process/compile-cache.ts';
import { LOGS_TO_4, logDescriptor } from '../../shared/process/log-descriptor.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { Stopping } from '../../shared/process/run.ts';
import {
  ANSWER_WITHIN_MS,
  type Answerers,
  type AskedOfPrimary,
  type AskedOfWorker,
  type Changed,
  Channel,
  type WorkerReport,
} from './channel.ts';
import { ASKS_FOR_FILES, type FilesMessage } from './last-good-files.ts';

export interface WorkerEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** The last part of the text that the worker wrote to standard error. */
  readonly said: string;
}

/** A worker that sends nothing for this long counts as hanging. A change waits for a worker for as long. */
const HANGS_AFTER_S = 10;
/** The limit for a worker that is still loading its code and therefore sends nothing. */
const LOADS_WITHIN_S = 60;
/** Longer than a server needs to stop after the lame-duck and linger times. */
const STOP_WITHIN_MS = 20_000;
/** How many characters of a worker's standard error are kept: a log line of that length is written atomically. */
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
 * The workers accept connections from one shared socket when they have time. Distribution by the primary would be more
 * even, but would cost 60 µs per connection and lose connections on their way to a killed worker.
 */
cluster.schedulingPolicy = cluster.SCHED_NONE;

/** A worker as its primary sees it: this program again, with the worker's number as its argument. */
export class WorkerProcess {
  /** Its number among the workers. Its replacement has the same number. */
  readonly number: number;
  /** The address for clients, once the worker is serving. Rejects with the worker's error if it exits before that. */
  readonly serving: Promise<string>;
  readonly ended: Promise<WorkerEnd>;
  readonly channel: Channel<AskedOfWorker, AskedOfPrimary>;
  /** The last report, which stays after the process has exited. */
  report: WorkerReport | undefined;
  isStopping = false;
  /** Unix time in ms. */
  readonly startedAt = Date.now();
  readonly #worker: Worker;
  readonly #stderr: ReturnType<typeof keepErrors>;
  /** Whether the worker has asked how to start. From then on it reads data that may change. */
  #hasStarted = false;
  #serves = false;
  /** Whether the worker may have connections. It can have some shortly before it reports that it is serving. */
  #listens = false;
  /** Whether the worker has asked for a key, and may hold one. */
  #hasKeys = false;
  /** Whether the worker was killed. A late message from a killed worker must not undo a newer change. */
  #isKilled = false;

  /** @param files the last valid contents of the files named by settings, if one of them is now invalid */
  constructor(
    number: number,
    port: number,
    files: ReadonlyMap<string, string> | undefined,
    answers: Answerers<AskedOfPrimary>,
  ) {
    this.number = number;
    // Messages contain undefined, which removes a field of a record. JSON cannot carry it.
    const serialization = 'advanced';
    cluster.setupPrimary({
      args: [String(number)],
      stdio: ['ignore', 'ignore', 'pipe', 'ipc', logDescriptor],
      serialization,
    });
    // One malloc arena is enough: only the main thread allocates much, and more arenas would hold on to 10 MB.
    const own = { [MARK]: process.pid, PORT: port, NODE_COMPILE_CACHE: compiledFolder(), MALLOC_ARENA_MAX: 1 };
    const asks = files && { [ASKS_FOR_FILES]: '1' };
    this.#worker = cluster.fork({ ...NOT_FOR_WORKERS, ...LOGS_TO_4, ...own, ...asks });
    this.#worker.once('listening', () => {
      this.#listens = true;
    });
    // If a message or signal fails, the process has exited, and its exit is handled elsewhere.
    this.#worker.on('error', () => {});
    this.#worker.on('message', (message: Partial<FilesMessage>) => {
      if (files !== undefined && message?.files === 'please')
        this.#worker.send({ files } satisfies FilesMessage, () => {});
    });
    this.#stderr = keepErrors(this.#worker.process);
    this.channel = new Channel<AskedOfWorker, AskedOfPrimary>(this.#worker.process, {
      ...answers,
      start: () => {
        this.#hasStarted = true;
        return answers.start(undefined);
      },
      report: (report) => {
        this.report = report ?? this.report;
        return answers.report(report);
      },
      load: (id) => {
        this.#hasKeys = true;
        return answers.load(id);
      },
      save: (order) => !this.#isKilled && answers.save(order),
      call: (call) => (this.#isKilled ? undefined : answers.call(call)),
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
   * Gives a serving worker time to finish its requests; kills one that is not serving. Resolves when the worker is
   * gone.
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
    if (this.#hasStarted) await this.#insist('changed', changed, 'The worker did not confirm a change in time.');
  }

  /**
   * Makes the worker send the state of a key and forget the key. Resolves when the worker no longer uses the key. A
   * worker that has been replaced has little time, because clients of its successor may wait for the key.
   */
  async release(order: AskedOfWorker['release'][0]): Promise<void> {
    const complaint = 'The worker did not release a key in time. Its last counts are lost.';
    if (this.#hasKeys) await this.#insist('release', order, complaint, this.isStopping ? ANSWER_WITHIN_MS : undefined);
  }

  /** Makes the worker send all states that are not stored yet. */
  async flush(): Promise<void> {
    if (this.#hasKeys) await this.channel.ask('flush', undefined);
  }

  async #insist<Name extends 'changed' | 'release'>(
    name: Name,
    question: AskedOfWorker[Name][0],
    complaint: string,
    withinMs = HANGS_AFTER_S * 1_000,
  ): Promise<void> {
    if ((await this.channel.insist(name, question, withinMs)) === true) return;
    // A disconnected worker exits by itself. If it misses several changes, one message is enough.
    if (this.#worker.isConnected() && !this.#isKilled) this.#stderr.add(complaint);
    this.kill();
    await this.ended;
  }

  async #untilServing(): Promise<string> {
    const { promise: served, resolve, reject } = Promise.withResolvers<string>();
    this.#worker.on('message', ({ gateway }: { gateway?: string }) => gateway !== undefined && resolve(gateway));
    void this.ended.then(({ code, signal, said }) =>
      reject(new Error(said || `A worker exited before it was ready: ${signal ?? `exit status ${code}`}.`)),
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
      this.#stderr.add(`The worker sent nothing for ${silentSeconds} s.`);
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
    /** From now on, also writes the worker's text to this process's standard error. */
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

/**
 * Finds workers whose primary died. They exit by themselves unless they hang; a hanging worker might keep the port
 * forever. A worker carries the process id of its primary in its environment. The kernel keeps the environment as it
 * was at the start (proc_pid_environ(5)), so nothing is written to disk, and no other process is mistaken for a worker.
 */

const MARK = 'GATEWAY_WORKER_OF';

/**
 * How long workers may take to close the port, and to exit, after their primary has died. Any that take longer are
 * hanging.
 */
const CLOSED_WITHIN_MS = 1_000;
const ENDED_WITHIN_MS = 10_000;
const LOOK_EVERY_MS = 50;

/** Kills hanging workers of earlier primaries: first those that listen on this port, later any others. */
export async function endLeftBehind(port: number, logger: Logger): Promise<void> {
  const found = leftBehind();
  const left = () => leftBehind().filter((pid) => found.includes(pid));
  const listeners = () => left().filter((pid) => isListening(pid, port));
  if (found.length === 0) return;
  setTimeout(() => kill(left(), logger), ENDED_WITHIN_MS).unref();
  for (const start = performance.now(); performance.now() - start < CLOSED_WITHIN_MS; await sleep(LOOK_EVERY_MS)) {
    if (listeners().length === 0) break;
  }
  kill(listeners(), logger);
  // The socket may be on its way to a worker that hung at its start. In that case no process has the socket, and
  // the socket closes when the worker exits.
  while (left().length > 0 && socketsAt(port, 'self').length > 0) await sleep(LOOK_EVERY_MS);
}

function kill(pids: readonly number[], logger: Logger): void {
  const killed = pids.filter((pid) => attempt(() => process.kill(pid, 'SIGKILL'), false));
  if (killed.length > 0) logger.warn({ pids: killed }, 'workers of an earlier primary hung and were killed');
}

/** Empty if /proc belongs to another PID namespace: its process ids differ from those seen here. */
const leftBehind = (): number[] => (link('self') === String(process.pid) ? pidsIn('/proc').filter(isLeftBehind) : []);

/** Whether a process is a worker of a gateway and no longer the child of the primary that started it. */
function isLeftBehind(pid: number): boolean {
  const [, primary] = new RegExp(`(?:^|\0)${MARK}=(\\d+)\0`).exec(text(pid, 'environ')) ?? [];
  // In another PID namespace, the primary would have a different process id here.
  if (primary === undefined || link(`${pid}/ns/pid`) !== link('self/ns/pid')) return false;
  // The program's name may contain anything, so only the fields after it are read: state, parent.
  const [, parent] = text(pid, 'stat').split(') ').at(-1)?.split(' ') ?? [];
  return parent !== primary;
}

function isListening(pid: number, port: number): boolean {
  const own = new Set(pidsIn(`/proc/${pid}/fd`).map((fd) => link(`${pid}/fd/${fd}`)));
  return socketsAt(port, pid).some((inode) => own.has(`socket:[${inode}]`));
}

/** The inodes of the sockets that listen on this port, in the network namespace of a process. */
function socketsAt(port: number, pid: number | 'self'): string[] {
  const at = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  // The tables can have tens of thousands of lines.
  const lines = `${text(pid, 'net/tcp')}${text(pid, 'net/tcp6')}`.split('\n').filter((line) => line.includes(at));
  const sockets = lines.map((line) => line.trim().split(/\s+/));
  return sockets.flatMap(([, local, , state, , , , , , inode = '']) =>
    local?.endsWith(at) && state === LISTENS ? inode : [],
  );
}

/** TCP_LISTEN in the kernel's tcp_states.h. */
const LISTENS = '0A';

function pidsIn(folder: string): number[] {
  return attempt(() => readdirSync(folder), []).flatMap((name) => (/^\d+$/.test(name) ? Number(name) : []));
}

const text = (pid: number | 'self', file: string): string =>
  attempt(() => readFileSync(`/proc/${pid}/${file}`, 'latin1'), '');
const link = (path: string): string => attempt(() => readlinkSync(`/proc/${path}`), '');

/** The process may have exited or belong to another user, and not every system has /proc. */
function attempt<T>(act: () => T, otherwise: T): T {
  try {
    return act();
  } catch {
    return otherwise;
  }
}
