import { CommanderError } from 'commander';
import { SettingsError } from '../../../shared/process/env.ts';
import { isZoneUnknown } from '../clients.ts';
import { AdminError } from './admin-client.ts';
import { createCommands } from './commands.ts';
import { EXIT, Session } from './session.ts';
import { harmless } from './text.ts';

/** The command line is a thin client of the admin listener, the same for Redis and for the embedded limiter. */

const session = new Session(process.env);

process.stdout.on('error', (fault: NodeJS.ErrnoException) => {
  // A reader that closes the pipe early, such as `head`, has what it needs.
  if (fault.code === 'EPIPE' && !session.mustBeRead) process.exit();
  const why = fault.code === 'EPIPE' ? 'its reader has closed it' : fault.message;
  process.stderr.write(`The output cannot be written: ${why}\n`);
  process.exit(EXIT.fault);
});

/** The exit codes of errors, by the status of the gateway's response or else by their code. */
const EXITS: Readonly<Record<string, number>> = {
  400: EXIT.usage,
  404: EXIT.notFound,
  409: EXIT.conflict,
  usage: EXIT.usage,
  not_confirmed: EXIT.notConfirmed,
};

const program = await createCommands(session);

// TZ sets the time zone of everything that Node prints.
program.on('option:utc', () => {
  process.env.TZ = 'UTC';
});

program.hook('preAction', () => {
  const { TZ } = process.env;
  if (TZ && process.stdout.isTTY && !session.isJson && isZoneUnknown())
    process.stderr.write(`Note: the time zone ${harmless(TZ)} is unknown. Times are in UTC.\n`);
});

await program.parseAsync().catch((fault: unknown) => {
  const [exit, code, message, status] = outcomeOf(fault);
  process.exitCode = exit;
  if (exit === EXIT.done) return;
  if (session.isJson) process.stderr.write(`${JSON.stringify({ code, message, status })}\n`);
  // Commander has already printed what is wrong with the command.
  else if (!(fault instanceof CommanderError)) process.stderr.write(`${message}\n`);
});

/**
 * Maps an error to its exit code and the fields printed with --json. The status is that of the gateway's response.
 * @throws any fault that an operator cannot act on
 */
function outcomeOf(
  fault: unknown,
): readonly [exit: number, code: string, message: string, status?: number | undefined] {
  if (fault instanceof CommanderError)
    return [fault.exitCode === 0 ? EXIT.done : EXIT.usage, 'usage', usageMessage(fault)];
  if (fault instanceof SettingsError) return [EXIT.fault, 'invalid_settings', fault.message];
  if (!(fault instanceof AdminError)) throw fault;
  const { code, message, status } = fault;
  return [EXITS[status ?? code] ?? EXIT.fault, code, message, status];
}

/** Commander has no message when a group is called without a command, because it shows the help. */
function usageMessage({ code, message }: CommanderError): string {
  if (code === 'commander.help') return 'A command is missing; --help lists the commands.';
  return message.replace(/^error: /, '').trim();
}
