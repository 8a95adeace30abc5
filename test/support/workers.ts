import { readFileSync } from 'node:fs';
import type { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, vi } from 'vitest';
import { childrenOf } from './children.ts';
import { cleanUp } from './clean-up.ts';
import { listeningCore, waitingCore } from './faulty-core.ts';
import { type Answer, post, send } from './http.ts';
import { type LogLine, parsedLines } from './log.ts';
import { startService } from './process.ts';
import { emptyDatabase } from './redis-database.ts';
import { ADMIN_TOKEN, temporaryFolder } from './stack.ts';

/** A gateway in several processes, started as a user or a container would start it. */
export type Workers = Awaited<ReturnType<typeof launchWorkers>>;

export const BOUNDLESS = { plan: 'enterprise', minute: 1_000_000_000, day: 1_000_000_000 };

/** The environment of a gateway with two workers, an empty Redis database and a core with empty lists. */
export async function workersEnvironment(environment: NodeJS.ProcessEnv = {}): Promise<NodeJS.ProcessEnv> {
  return {
    WORKERS: '2',
    PORT: '0',
    ADMIN_PORT: '0',
    ADMIN_TOKEN,
    REDIS_URL: environment.REDIS_URL ?? (await emptyDatabase()).url,
    REDIS_TIMEOUT_MS: '5000',
    CORE_URL: environment.CORE_URL ?? (await listeningCore()).url,
    DATA_DIR: await temporaryFolder(),
    ...environment,
  };
}

export async function startWorkers(environment: NodeJS.ProcessEnv = {}): Promise<Workers> {
  const workers = await launchWorkers(environment);
  const all = Number(environment.WORKERS ?? 2);
  await vi.waitFor(() => expect(workers.pids()).toHaveLength(all), { timeout: 60_000 });
  return workers;
}

/** Starts a gateway for a test or for a whole test file, without waiting until all workers serve requests. */
export async function launchWorkers(environment: NodeJS.ProcessEnv = {}) {
  const started = await startService('gateway/main.ts', await workersEnvironment(environment));
  const { gateway = '', admin: adminUrl = '' } = started.addresses;
  const lines = parsedLines(started.out);
  const logged = (msg: string): LogLine[] => lines().filter((line) => line.msg === msg);
  const pids = () => {
    const latest = new Map(logged('worker is serving').map(({ worker, pid }) => [worker, pid as number]));
    return [...latest].sort(([a], [b]) => Number(a) - Number(b)).map(([, pid]) => pid);
  };
  return {
    ...started,
    gateway,
    adminUrl,
    /**
     * The process ids of the workers by worker number, from the log so far. A worker that has exited is listed until it
     * is replaced.
     */
    pids,
    /** The log lines with this message so far. */
    logged,
    admin: (path: string): Promise<Answer> => send(adminUrl + path, { key: ADMIN_TOKEN }),
    /** Makes a change through the admin API. */
    change: (method: string, path: string, body?: unknown): Promise<Answer> =>
      body === undefined
        ? send(adminUrl + path, { method, key: ADMIN_TOKEN })
        : post(adminUrl + path, body, { method, key: ADMIN_TOKEN }),
    async issueKey(limits: Record<string, unknown> = BOUNDLESS): Promise<string> {
      const { json } = await post(`${adminUrl}/keys`, { name: 'test', ...limits }, { key: ADMIN_TOKEN });
      return (json as { key: string }).key;
    },
  };
}

/** Sends a signal to a process and its children, such as a gateway and its workers. */
export function signalAll(pid: number, signal: NodeJS.Signals): void {
  for (const one of [pid, ...childrenOf(pid)]) process.kill(one, signal);
}

/** Whether a process is running. A process that has exited may still be listed as a zombie. */
export function isAlive(pid: number): boolean {
  try {
    return !readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z ');
  } catch {
    return false;
  }
}

/** Waits until this many workers serve requests. */
export const untilServing = (workers: Workers, count: number): Promise<void> =>
  eventually(async () => (await workers.admin('/metrics')).text).toMatch(
    new RegExp(`^gateway_workers_serving ${count}$`, 'm'),
  );

/** Polls for long enough, even for processes and their logs on a busy machine. */
export const eventually = <T>(read: () => T) => expect.poll(read, { timeout: 30_000, interval: 20 });

/** Lists pets. @param agent an agent whose connections are reused */
export const list = (workers: Workers, key: string, agent?: Agent): Promise<Answer> =>
  send(`${workers.gateway}/v1/pets`, { key, ...(agent && { agent }) });

/** Makes the first worker exit with `end`, and waits until another one has replaced it. */
export async function replaced(workers: Workers, end: (pid: number) => unknown): Promise<void> {
  await eventually(() => workers.pids().length).toBeGreaterThan(0);
  const [before = 0] = workers.pids();
  end(before);
  await eventually(() => workers.pids()[0]).not.toBe(before);
}

/** Suspends a process. It is killed after the test if it is still alive. */
export function suspend(pid: number): void {
  process.kill(pid, 'SIGSTOP');
  cleanUp(() => isAlive(pid) && process.kill(pid, 'SIGKILL'));
}

/** Suspends a process and its children for a while. */
export async function stall(pid: number, ms: number): Promise<void> {
  signalAll(pid, 'SIGSTOP');
  await sleep(ms);
  signalAll(pid, 'SIGCONT');
}

/** Starts a gateway with workers and sends a request. The core answers once the test releases the answer. */
export async function withRequestInFlight(environment: NodeJS.ProcessEnv = {}, start = startWorkers) {
  const core = await waitingCore();
  const workers = await start({ CORE_URL: core.url, ...environment });
  const inFlight = list(workers, await workers.issueKey());
  // If the test fails before it awaits this promise, its rejection would be unhandled.
  inFlight.catch(() => {});
  return { workers, inFlight, answer: await core.arrived };
}
