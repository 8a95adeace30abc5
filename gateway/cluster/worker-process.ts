import type { ChildProcess } from 'node:child_process';
import cluster from 'node:cluster';
import type { MetricsSnapshot } from '../../shared/metrics.ts';
import type { StopMessage, Stopping } from '../../shared/run.ts';
import type { DecisionQuery, DecisionReport } from '../telemetry/recent-decisions.ts';
import type { FromWorker, Question, TrafficReport } from './worker.ts';

/** A worker as its primary sees it. */
export interface WorkerProcess {
  /** Its place among the workers: the one that replaces it bears the same number. */
  readonly number: number;
  readonly pid: number | undefined;
  /** Where it serves clients, once it does. Rejects with what it said when it ended before. */
  readonly serving: Promise<string>;
  readonly ended: Promise<WorkerEnd>;
  /** Lets it end what it has begun, and ends it where that takes too long. Resolves when it is gone. */
  stop(how: Stopping): Promise<void>;
  kill(): void;
  /** How it is; undefined when it does not say in time. */
  metrics(): Promise<MetricsSnapshot | undefined>;
  /** Its last decisions, the newest first; none when it does not say in time. */
  decisions(query: DecisionQuery): Promise<DecisionReport[]>;
  /** What it last told of its clients; it goes on saying that when the process has ended. */
  traffic(): TrafficReport | undefined;
}

export interface WorkerEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** The last that it wrote to standard error. */
  readonly said: string;
}

const START_WITHIN_MS = 30_000;
/** Above what a server takes at most to stop: lame duck, lingering, grace. */
const STOP_WITHIN_MS = 30_000;
const ANSWER_WITHIN_MS = 1_000;
/** Of its standard error: what a line of the log can hold that is still written in one piece. */
const MAX_SAID = 2_000;

/** What only the primary needs: where operators reach it, and their token. */
const NOT_FOR_WORKERS = { ADMIN_HOST: undefined, ADMIN_PORT: undefined, ADMIN_TOKEN: undefined };

/**
 * The workers take connections from one socket as they have time. Handed out in turn by the primary, they are spread more
 * evenly, but each costs it 60 µs, and one on its way to a worker that is killed would never be answered.
 */
cluster.schedulingPolicy = cluster.SCHED_NONE;

let nextQuestion = 0;

/** Starts a worker: this program once more, with its number as the argument. */
export function forkWorker(place: number): WorkerProcess {
  cluster.setupPrimary({ args: [String(place)], stdio: ['ignore', 'inherit', 'pipe', 'ipc'] });
  const worker = cluster.fork(NOT_FOR_WORKERS);
  const child = worker.process;
  const stderr = keepErrors(child);
  const ended = endOf(child, stderr.said);
  // What cannot be sent to a worker or done to it shows in its end.
  worker.on('error', () => {});
  let serves = false;
  let traffic: TrafficReport | undefined;
  worker.on('message', (message: FromWorker) => {
    if ('traffic' in message) traffic = message.traffic;
  });
  /** Whoever waits for an answer is shown every message, and none once it cannot answer any more. */
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
   * What it answers; undefined when it does not in time. Nothing of it hangs on `ended`, which would keep every answer for
   * as long as the worker lives.
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

/** Keeps the end of what a process writes to standard error: its last words. From when it serves, they are passed on too. */
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
