import { CommanderError } from 'commander';
import { SettingsError } from '../../../shared/process/env.ts';
import { AdminError } from './admin-client.ts';
import { UnclearKey } from './key-names.ts';
import { NotConfirmed } from './session.ts';

/** Maps the end of a command to its exit code, and its error to JSON. */

export const EXIT = { done: 0, fault: 1, usage: 2, notFound: 3, conflict: 4, notConfirmed: 5 } as const;

/** The members of an error with --json. `status` is that of the gateway's response. */
interface ErrorView {
  readonly code: string;
  readonly message: string;
  readonly status?: number | undefined;
}

/** Maps an error to its exit code and its code. @throws any fault that an operator cannot act on */
export function outcomeOf(fault: unknown): { exit: number; error: ErrorView } {
  if (fault instanceof CommanderError) {
    const exit = fault.exitCode === 0 ? EXIT.done : EXIT.usage;
    return { exit, error: { code: 'usage', message: usageMessage(fault) } };
  }
  if (fault instanceof UnclearKey) return { exit: EXIT.usage, error: { code: 'usage', message: fault.message } };
  if (fault instanceof NotConfirmed)
    return { exit: EXIT.notConfirmed, error: { code: 'not_confirmed', message: fault.message } };
  if (fault instanceof SettingsError)
    return { exit: EXIT.fault, error: { code: 'invalid_settings', message: fault.message } };
  if (!(fault instanceof AdminError)) throw fault;
  const { code, message, status } = fault;
  return { exit: exitCodeOf(status), error: { code, message, status } };
}

function exitCodeOf(status: number | undefined): number {
  if (status === 400) return EXIT.usage;
  if (status === 404) return EXIT.notFound;
  return status === 409 ? EXIT.conflict : EXIT.fault;
}

/** Commander has no message when a group is called without a command, because it shows the help. */
const usageMessage = ({ code, message }: CommanderError): string =>
  code === 'commander.help' ? 'A command is missing; --help lists them.' : message.replace(/^error: /, '').trim();

/** Sets the exit code of a command that has given its answer. */
export function endWith(code: (typeof EXIT)[keyof typeof EXIT]): void {
  process.exitCode = code;
}
