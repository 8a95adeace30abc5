import { CommanderError } from 'commander';
import { isZoneUnknown } from '../common-words.ts';
import { createCommands } from './commands.ts';
import { EXIT, outcomeOf } from './outcome.ts';
import { Session } from './session.ts';
import { harmless } from './table.ts';

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
