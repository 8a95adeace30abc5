import { type Ended, startProcess } from './process.ts';
import { ADMIN_TOKEN, type Stack } from './stack.ts';

/** The operators' command line, in a process as they run it. */
export const CLI = 'gateway/admin/cli.ts';

/** What it finds a gateway by. */
export const operatorOf = ({ adminUrl }: Pick<Stack, 'adminUrl'>) => ({
  ADMIN_PORT: new URL(adminUrl).port,
  ADMIN_TOKEN,
});

export const ctlWith = (environment: NodeJS.ProcessEnv, ...words: readonly string[]): Promise<Ended> =>
  startProcess(process.execPath, [CLI, ...words], environment).ended;

export const ctl = (stack: Pick<Stack, 'adminUrl'>, ...words: readonly string[]): Promise<Ended> =>
  ctlWith(operatorOf(stack), ...words);
