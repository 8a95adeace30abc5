import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cleanUp } from './clean-up.ts';
import { knowServices } from './described-answers.ts';
import { endsWithUs } from './ends-with-us.ts';
import { watchFailures } from './failures.ts';
import { parsedLines } from './log.ts';
import { freePort } from './port.ts';
import { ROOT } from './root.ts';

export { ROOT };

export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

export interface Started {
  readonly child: ChildProcess;
  /** The standard output so far. */
  out(): string;
  /** The standard error so far. */
  err(): string;
  ended: Promise<Ended>;
}

/** Starts a process as a user or a container would. It is killed after the test if it is still running. */
export function startProcess(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  options: SpawnOptions = {},
): Started {
  const child = spawn(command, args, {
    cwd: ROOT,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
    ...options,
  });
  endsWithUs(child);
  let out = '';
  let err = '';
  child.stdout?.on('data', (chunk) => {
    out += chunk;
  });
  child.stderr?.on('data', (chunk) => {
    err += chunk;
  });
  cleanUp(() => void child.kill('SIGKILL'));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, out, err }));
  return { child, out: () => out, err: () => err, ended };
}

/**
 * Chooses ports below the range that the system assigns to connections. A port in that range could be in use before a
 * worker listens, or during a restart.
 */
const ownPorts = async ({ PORT, ADMIN_PORT }: NodeJS.ProcessEnv) => ({
  ...(PORT === '0' && { PORT: String(await freePort()) }),
  ...(ADMIN_PORT === '0' && { ADMIN_PORT: String(await freePort()) }),
});

/**
 * Starts a service and waits until it reports its addresses. A port of 0 is replaced by a free port.
 * @param within a command that starts the service
 */
export async function startService(
  main: string,
  env: NodeJS.ProcessEnv,
  within: readonly string[] = [],
): Promise<Started & { addresses: Record<string, string> }> {
  const [command = '', ...args] = [...within, process.execPath, main];
  const all = { ...env, ...(await ownPorts(env)) };
  const started = startProcess(command, args, all, { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
  const failed = started.ended.then(({ err }) => Promise.reject(new Error(`${main} did not start: ${err}`)));
  const [addresses] = (await Promise.race([once(started.child, 'message'), failed])) as [Record<string, string>];
  failed.catch(() => {});
  // At the end of the test, the process is killed without waiting for its exit.
  const forget = knowServices(addresses, env.CORE_URL);
  started.ended.then(forget);
  cleanUp(forget);
  const { child, out } = started;
  const isExcused = () => child.signalCode === 'SIGKILL' || !LEVELS_OF_FAILURES.includes(env.LOG_LEVEL ?? 'info');
  cleanUp(watchFailures(Object.values(addresses), { lines: parsedLines(out), isExcused }));
  return { ...started, addresses };
}

/** The log levels at which failures are logged. */
const LEVELS_OF_FAILURES = ['trace', 'debug', 'info', 'warn'];
