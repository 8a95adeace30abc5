import { CommanderError } from 'commander';
import { SettingsError } from '../../../shared/process/env.ts';
import { isZoneUnknown } from '../clients.ts';
import { AdminError } from './admin-client.ts';
import { createCommands } from './commands.ts';
import { EXIT, NotConfirmed, Session, UnclearKey } from './session.ts';
import { harmless } from './text.ts';

/** The command line is a thin client of the admin listener, the same for Redis and for the embedded limiter. */

// A reader that closes the pipe early, such as `head`, has what it needs.
process.stdout.on('error', (fault: NodeJS.ErrnoException) => {
  if (fault.code === 'EPIPE') process.exit();
  process.stderr.write(`The output cannot be written: ${fault.message}\n`);
  process.exit(EXIT.fault);
});

/** The options of a command that could not be parsed are unknown. */
const isJson = () => process.argv.includes('--json');

const program = await createCommands(new Session(process.env, () => program.opts()), isJson);

// This sets the zone of every time that Node prints.
program.on('option:utc', () => {
  process.env.TZ = 'UTC';
});

program.hook('preAction', () => {
  const { TZ } = process.env;
  if (TZ && process.stdout.isTTY && !isJson() && isZoneUnknown())
    process.stderr.write(`Note: the time zone ${harmless(TZ)} is unknown. Times are in UTC.\n`);
});

await program.parseAsync().catch((fault: unknown) => {
  const { exit, error } = outcomeOf(fault);
  process.exitCode = exit;
  if (exit === EXIT.done) return;
  if (isJson()) process.stderr.write(`${JSON.stringify(error)}\n`);
  // Commander has already printed what is wrong with the command.
  else if (!(fault instanceof CommanderError)) process.stderr.write(`${error.message}\n`);
});

/** Maps the end of a command to its exit code, and its error to JSON. */

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
function usageMessage({ code, message }: CommanderError): string {
  return code === 'commander.help'
    ? 'A command is missing; --help lists them.'
    : message.replace(/^error: /, '').trim();
}
