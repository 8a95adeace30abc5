import { type Ended, startProcess } from './process.ts';
import { ADMIN_TOKEN, type Stack } from './stack.ts';

/** The operators' command line, run as a process. */
export const CLI = 'gateway/operators/cli/main.ts';

/** The environment with which it finds a gateway. */
export const operatorOf = ({ adminUrl }: Pick<Stack, 'adminUrl'>) => ({
  ADMIN_PORT: new URL(adminUrl).port,
  ADMIN_TOKEN,
});

export const ctlWith = (environment: NodeJS.ProcessEnv, ...words: readonly string[]): Promise<Ended> =>
  startProcess(process.execPath, [CLI, ...words], environment).ended;

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
