import type { ChildProcess } from 'node:child_process';
import cluster from 'node:cluster';
import { compiledFolder } from '../../shared/process/compile-cache.ts';
import type { MetricsSnapshot } from '../../shared/process/metrics.ts';
import type { StopMessage, Stopping } from '../../shared/process/run.ts';
import type { DecisionQuery, DecisionReport } from '../telemetry/recent-decisions.ts';
import type { FromWorker, Question, TrafficReport } from './worker.ts';

/** A worker, seen from its primary. */
export interface WorkerProcess {
  /** Its number among the workers. Its replacement has the same number. */
  readonly number: number;
  readonly pid: number | undefined;
  /** The client address, once it serves. Rejects with the worker's error if it ended before. */
  readonly serving: Promise<string>;
  readonly ended: Promise<WorkerEnd>;
  /** Lets it finish its requests and kills it after a timeout. Resolves when it is gone. */
  stop(how: Stopping): Promise<void>;
  kill(): void;
  /** Its metrics; undefined if it does not answer in time. */
  metrics(): Promise<MetricsSnapshot | undefined>;
  /** Its last decisions, the newest first; empty if it does not answer in time. */
  decisions(query: DecisionQuery): Promise<DecisionReport[]>;
  /** Its last traffic report, also after the process has ended. */
  traffic(): TrafficReport | undefined;
}

export interface WorkerEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** The end of its standard error. */
  readonly said: string;
}

const START_WITHIN_MS = 30_000;
/** Longer than a server needs to stop: lame duck, lingering, grace. */
const STOP_WITHIN_MS = 30_000;
const ANSWER_WITHIN_MS = 1_000;
/** Characters of its standard error: what fits in a log line that is written atomically. */
const MAX_SAID = 2_000;

/** Settings for the primary only: the operators' address and token. */
const NOT_FOR_WORKERS = {
  ADMIN_HOST: undefined,
  ADMIN_PORT: undefined,
  ADMIN_TOKEN: undefined,
  ADMIN_TOKEN_FILE: undefined,
};

/**
 * The workers accept from one shared socket when they have time. Distribution by the primary is more even, but costs it
 * 60 µs per connection, and a connection on its way to a killed worker would never be answered.
 */
cluster.schedulingPolicy = cluster.SCHED_NONE;

let nextQuestion = 0;

/** Starts a worker: this program again, with the worker's number as its argument. */
export function forkWorker(place: number): WorkerProcess {
  cluster.setupPrimary({ args: [String(place)], stdio: ['ignore', 'inherit', 'pipe', 'ipc'] });
  const worker = cluster.fork({ ...NOT_FOR_WORKERS, NODE_COMPILE_CACHE: compiledFolder() });
  const child = worker.process;
  const stderr = keepErrors(child);
  const ended = endOf(child, stderr.said);
  // A failed message or signal shows in the end of the process.
  worker.on('error', () => {});
  let serves = false;
  let traffic: TrafficReport | undefined;
  worker.on('message', (message: FromWorker) => {
    if ('traffic' in message) traffic = message.traffic;
  });
  /** Each waiting question sees every message, and undefined once the worker is disconnected. */
  const waiting = new Set<(message?: FromWorker) => void>();
  worker.on('message', (message: FromWorker) => waiting.forEach((take) => void take(message)));
  worker.on('disconnect', () => waiting.forEach((take) => void take()));

  async function untilServing(): Promise<string> {
    const timer = setTimeout(() => child.kill('SIGKILL'), START_WITHIN_MS);
    const { promise: served, resolve, reject } = Promise.withResolvers<string>();
    worker.on('message', (message: FromWorker) => 'gateway' in message && resolve(message.gateway));
    void ended.then((end) => reject(new Error(describe(end))));
    try {
      const address = await served;
      serves = true;
      stderr.passOn();
      return address;
    } finally {
      clearTimeout(timer);
    }
  }

  const send = (message: StopMessage | Question) => worker.isConnected() && worker.send(message, () => {});
  const kill = () => void child.kill('SIGKILL');

  /**
   * The worker's answer; undefined if it comes too late. Nothing here attaches to `ended`: that would keep every answer
   * in memory as long as the worker lives.
   */
  async function ask<T>(question: Question, answerIn: (message: FromWorker) => T | undefined): Promise<T | undefined> {
    if (!worker.isConnected()) return undefined;
    const { promise, resolve } = Promise.withResolvers<T | undefined>();
    const take = (message?: FromWorker) => {
      const answer = message && answerIn(message);
      if (message === undefined || answer !== undefined) resolve(answer);
    };
    const timer = setTimeout(take, ANSWER_WITHIN_MS);
    waiting.add(take);
    send(question);
    const answer = await promise;
    waiting.delete(take);
    clearTimeout(timer);
    return answer;
  }

  return {
    number: place,
    pid: child.pid,
    serving: untilServing(),
    ended,
    async stop(how) {
      const timer = setTimeout(kill, STOP_WITHIN_MS);
      if (serves) send({ stop: how });
      else kill();
      await ended;
      clearTimeout(timer);
    },
    kill,
    metrics: () => ask({ ask: 'metrics' }, (message) => ('metrics' in message ? message.metrics : undefined)),
    async decisions(query) {
      const number = nextQuestion++;
      const told = await ask({ ask: 'decisions', query, number }, (message) =>
        'decisions' in message && message.to === number ? message.decisions : undefined,
      );
      return (told ?? []).map((decision) => ({ ...decision, gateway: { ...decision.gateway, worker: place } }));
    },
    traffic: () => traffic,
  };
}

/** Keeps the end of a process's standard error. Once it serves, the output is passed on too. */
function keepErrors({ stderr }: ChildProcess) {
  let said = '';
  stderr?.setEncoding('utf8');
  stderr?.on('data', (text: string) => {
    said = (said + text).slice(-MAX_SAID);
  });
  return {
    said: () => said.trim(),
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

function describe({ code, signal, said }: WorkerEnd): string {
  return said || `A worker ended before it served: ${signal ?? `exit status ${code}`}.`;
}
