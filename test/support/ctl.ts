import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import type { Run } from './ctl-thread.ts';
import { type Ended, startProcess } from './process.ts';
import { ADMIN_TOKEN, type Stack } from './stack.ts';

/** The operators' command line. */
export const CLI = 'gateway/operators/cli/main.ts';

/** The environment with which it finds a gateway. */
export const operatorOf = ({ adminUrl }: Pick<Stack, 'adminUrl'>) => ({
  ADMIN_PORT: new URL(adminUrl).port,
  ADMIN_TOKEN,
});

let thread: Worker | undefined;
let last: Promise<unknown> = Promise.resolve();

/**
 * Runs a command in a thread that has loaded the command line before, one command after the other: loading it takes a
 * process a quarter of a second. What a process alone shows, such as a terminal or its input, is tested with a process.
 */
export function ctlWith(env: NodeJS.ProcessEnv, ...words: readonly string[]): Promise<Ended> {
  const ended = last.then(async () => {
    thread ??= startThread();
    thread.postMessage({ words, env } satisfies Run);
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

/** With this on its standard input. */
export function ctlReading(
  stack: Pick<Stack, 'adminUrl'>,
  input: string | Buffer,
  ...words: readonly string[]
): Promise<Ended> {
  const { child, ended } = startProcess(process.execPath, [CLI, ...words], operatorOf(stack));
  // Whoever refuses an input does not read it to its end.
  child.stdin?.on('error', () => {});
  child.stdin?.end(input);
  return ended;
}
