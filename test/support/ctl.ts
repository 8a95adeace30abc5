import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect } from 'vitest';
import type { Run } from './ctl-thread.ts';
import { type Ended, type Started, startProcess } from './process.ts';
import { ADMIN_TOKEN, type Stack } from './stack.ts';

/** The operators' command line. */
export const CLI = 'gateway/operators/cli/main.ts';

/** The environment in which the command line finds a gateway. */
export const operatorOf = ({ adminUrl }: Pick<Stack, 'adminUrl'>) => ({
  ADMIN_PORT: new URL(adminUrl).port,
  ADMIN_TOKEN,
});

let thread: Worker | undefined;
let last: Promise<unknown> = Promise.resolve();

/**
 * Runs a command in a thread that has already loaded ctl, because a new process takes a quarter of a second to load it.
 * Commands run one at a time. A test of behaviour that depends on the process, such as the use of a terminal, needs
 * `ctlProcess`.
 */
export const ctlWith = (env: NodeJS.ProcessEnv, ...words: readonly string[]): Promise<Ended> =>
  inThread({ words, env });

function inThread(run: Run): Promise<Ended> {
  const ended = last.then(async () => {
    thread ??= startThread();
    thread.postMessage(run);
    const [answer] = (await once(thread, 'message')) as [Ended];
    return answer;
  });
  last = ended.catch(() => {});
  return ended;
}

function startThread(): Worker {
  const started = new Worker(new URL('./ctl-thread.ts', import.meta.url), { execArgv: [], env: {} });
  started.unref();
  started.once('exit', () => {
    thread = undefined;
  });
  return started;
}

export const ctl = (stack: Pick<Stack, 'adminUrl'>, ...words: readonly string[]): Promise<Ended> =>
  ctlWith(operatorOf(stack), ...words);

/** Runs a command with this text on its standard input. */
export const ctlReading = (
  stack: Pick<Stack, 'adminUrl'>,
  input: string | Buffer,
  ...words: readonly string[]
): Promise<Ended> => inThread({ words, env: operatorOf(stack), input });

/** Runs a command in its own process, with this text on its standard input if given. */
export function ctlProcess(env: NodeJS.ProcessEnv, words: readonly string[], input?: string): Started {
  const started = startProcess(process.execPath, [CLI, ...words], env);
  if (input !== undefined) started.child.stdin?.end(input);
  return started;
}

/** Runs a command on a terminal that the program `script` provides. */
export const ctlOnTerminal = (
  stack: Pick<Stack, 'adminUrl'>,
  words: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Started =>
  startProcess('script', ['-qec', [process.execPath, CLI, ...words].join(' '), '/dev/null'], {
    ...operatorOf(stack),
    TERM: 'xterm-256color',
    ...env,
  });

/** Waits for the question on the terminal, then types the answer. @returns the exit code */
export async function answer(started: Started, question: string, typed: string): Promise<number | null> {
  await expect.poll(() => started.out(), { timeout: 30_000 }).toContain(question);
  started.child.stdin?.write(typed);
  return (await started.ended).code;
}
