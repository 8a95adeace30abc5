import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { programPath } from './programs.ts';

/**
 * The processes of a run. Each leads its own process group, which is killed by its id when the run ends for any reason.
 * If the run itself is killed, the kernel kills the processes (setpriv --pdeathsig).
 */

export const ROOT = join(import.meta.dirname, '../../..');

/** The folder for the files of a run, deleted at its end. */
export const folder = mkdtempSync(join(tmpdir(), 'animal-store-bench-'));

export interface Service {
  readonly name: string;
  readonly pid: number;
  /** The URLs on which it listens, by name. */
  readonly urls: Readonly<Record<string, string>>;
  /** The file to which its standard output is written. */
  readonly log: string;
}

const running = new Map<ChildProcess, string>();
let ending = false;

process.once('exit', () => {
  ending = true;
  for (const child of running.keys()) killGroup(child);
  rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.once(signal, () => {
    process.stderr.write(`\n${signal}: stopping.\n`);
    process.exit(130);
  });
}

/** Starts one of the project's Node programs, and waits until it reports its address. */
export async function startNode(
  name: string,
  script: string,
  env: NodeJS.ProcessEnv,
  node = process.execPath,
): Promise<Service> {
  const { child, pid, log } = launch(name, node, [script], env);
  const [urls] = (await once(child, 'message')) as [Record<string, string>];
  return { name, pid, urls, log };
}

/** Starts a third-party program that listens at `url`, and waits until it accepts connections there. */
export async function startProgram(
  name: string,
  args: readonly string[],
  url: string,
  isUp: () => Promise<unknown>,
): Promise<Service> {
  const { pid, log } = launch(name, programPath(args[0] as string), args.slice(1), {});
  for (let attempt = 0; attempt < 200; attempt++) {
    const isAnswering = await isUp().then(
      () => true,
      () => false,
    );
    if (isAnswering) return { name, pid, urls: { [name]: url }, log };
    await sleep(25);
  }
  throw new Error(`${name} did not come up at ${url}. ${errorsOf(name)}`);
}

/** Runs a program to completion. @returns its standard output */
export async function runProgram(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<string> {
  const child = spawnInGroup(command, args, env, ['ignore', 'pipe', 'pipe']);
  running.set(child, command);
  let out = '';
  let errors = '';
  child.stdout?.on('data', (chunk) => {
    out += chunk;
  });
  child.stderr?.on('data', (chunk) => {
    errors += chunk;
  });
  const [code] = await once(child, 'close');
  running.delete(child);
  if (code !== 0) throw new Error(`${command} exited with ${code}: ${errors}${out}`);
  return out;
}

/** Starts a process that runs until the end of the run. If it exits earlier, the run ends too. */
function launch(name: string, command: string, args: readonly string[], env: NodeJS.ProcessEnv) {
  const log = join(folder, `${name}.log`);
  mkdirSync(folder, { recursive: true });
  const errors = openSync(join(folder, `${name}.err`), 'a');
  const child = spawnInGroup(command, args, env, ['ignore', openSync(log, 'a'), errors, 'ipc']);
  running.set(child, name);
  child.once('exit', (code, signal) => {
    running.delete(child);
    if (ending) return;
    process.stderr.write(`\n${name} exited (${signal ?? code}). ${errorsOf(name)}\n`);
    process.exit(1);
  });
  return { child, pid: child.pid as number, log };
}

type Stdio = ('ignore' | 'inherit' | 'pipe' | 'ipc' | number)[];

/** Starts a process that may exit before the run ends. */
export function spawnForRun(name: string, args: readonly string[], env: NodeJS.ProcessEnv, stdio: Stdio): ChildProcess {
  const child = spawnInGroup(args[0] as string, args.slice(1), env, stdio);
  running.set(child, name);
  child.once('exit', () => running.delete(child));
  return child;
}

function spawnInGroup(command: string, args: readonly string[], env: NodeJS.ProcessEnv, stdio: Stdio): ChildProcess {
  return spawn('setpriv', ['--pdeathsig', 'TERM', '--', command, ...args], {
    cwd: ROOT,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, NODE_ENV: 'production', ...env },
    detached: true,
    stdio,
  });
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // The process has already exited.
  }
}

/** The end of a process's standard error. */
function errorsOf(name: string): string {
  return readFileSync(join(folder, `${name}.err`), 'utf8').slice(-2_000);
}
