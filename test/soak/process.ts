import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { spawnForRun } from '../bench/machine/processes.ts';
import { usageOf, withChildren } from '../bench/machine/usage.ts';
import { sum } from '../support/statistics.ts';

/** The resources that a process uses. */
export interface Holding {
  readonly megabytes: number;
  readonly fileHandles: number;
}

/** A process of the soak test that can be stopped and started again. If it exits on its own, a promise is broken. */
export class SoakProcess {
  readonly #options: SoakProcessOptions;
  #child: ChildProcess | undefined;
  #isMeantToEnd = false;
  /** The time of the last start, by performance.now(). */
  startedAt = 0;

  constructor(options: SoakProcessOptions) {
    this.#options = options;
  }

  get name(): string {
    return this.#options.name;
  }

  /** Starts the process, and resolves when it is up. */
  async start(): Promise<void> {
    this.#isMeantToEnd = false;
    this.startedAt = performance.now();
    const { name, args, env = {}, isUp, onLine = () => {}, onSelfEnded } = this.#options;
    const child = spawnForRun(name, args, env, ['ignore', 'pipe', 'inherit', 'ipc']);
    this.#child = child;
    if (child.stdout !== null) createInterface({ input: child.stdout }).on('line', onLine);
    child.once('exit', (code, signal) => {
      if (!this.#isMeantToEnd) onSelfEnded(`${name} exited on its own (${signal ?? code})`);
    });
    await (isUp?.(child) ?? once(child, 'message'));
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child?.kill(signal);
  }

  /** Stops the process, and waits until it has exited. */
  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    this.#isMeantToEnd = true;
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  }

  /** The resources that the process uses now. All are 0 while it is not running. */
  holding(): Holding {
    const pid = this.#child?.pid;
    if (pid === undefined || !existsSync(`/proc/${pid}/task`)) return { megabytes: 0, fileHandles: 0 };
    const fileHandles = sum(withChildren(pid).map((one) => readdirSync(`/proc/${one}/fd`).length));
    return { megabytes: usageOf(pid).residentMegabytes, fileHandles };
  }
}

export interface SoakProcessOptions {
  readonly name: string;
  readonly args: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Resolves when the process is up. Not needed for the project's own services, which report it themselves. */
  readonly isUp?: (child: ChildProcess) => Promise<unknown>;
  readonly onLine?: (line: string) => void;
  readonly onSelfEnded: (what: string) => void;
}
