import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { cleanUp } from './clean-up.ts';
import { forget, knowCore, knowGateway } from './described-answers.ts';
import { watchFailures } from './failures.ts';
import { parsedLines } from './log.ts';

export const ROOT = join(import.meta.dirname, '../..');

export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

export interface Started {
  readonly child: ChildProcess;
  /** What it has written to standard output so far. */
  out(): string;
  ended: Promise<Ended>;
}

/** A process of ours, as a person or a container would start it. Killed after the test, if it is still there. */
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
  return { child, out: () => out, ended };
}

/** One of the deployables, once it tells where it listens. */
export async function startService(
  main: string,
  env: NodeJS.ProcessEnv,
): Promise<Started & { addresses: Record<string, string> }> {
  const started = startProcess(process.execPath, [main], env, { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
  const failed = started.ended.then(({ err }) => Promise.reject(new Error(`${main} did not start: ${err}`)));
  const [addresses] = (await Promise.race([once(started.child, 'message'), failed])) as [Record<string, string>];
  failed.catch(() => {});
  for (const address of Object.values(addresses)) forget(address);
  if (addresses.core !== undefined) knowCore(addresses.core);
  if (addresses.gateway !== undefined) knowGateway(addresses.gateway, env.CORE_URL ?? '');
  const { child, out } = started;
  const isExcused = () => child.signalCode === 'SIGKILL' || !LEVELS_OF_FAILURES.includes(env.LOG_LEVEL ?? 'info');
  cleanUp(watchFailures(Object.values(addresses), { lines: parsedLines(out), isExcused }));
  return { ...started, addresses };
}

/** At any other level the log has been told to keep failures to itself. */
const LEVELS_OF_FAILURES = ['trace', 'debug', 'info', 'warn'];
