import { Command, CommanderError } from 'commander';
import { SettingsError } from '../../shared/env.ts';
import { AdminError } from './client.ts';
import { addBanCommands } from './commands/bans.ts';
import { addDoctorCommand } from './commands/doctor.ts';
import { addKeyCommands } from './commands/keys.ts';
import { addPlanCommands } from './commands/plans.ts';
import { NotConfirmed, Session } from './commands/session.ts';
import { addUsageCommand } from './commands/usage.ts';

/** The operator's command line: a thin client of the admin listener, alike for Redis and for the embedded limiter. */

const EXIT = { done: 0, fault: 1, usage: 2, notFound: 3, conflict: 4, notConfirmed: 5 } as const;

const program = new Command('ctl')
  .description('Operates a running gateway: API keys, bans, plan limits and usage.')
  .option('--json', 'print answers and errors as JSON')
  .option('-y, --yes', 'take questions as answered with yes')
  .exitOverride()
  .showHelpAfterError('(--help after any command tells more)')
  .addHelpText(
    'after',
    `
The gateway is found by ADMIN_HOST, ADMIN_PORT and ADMIN_TOKEN; without a token by DATA_DIR/admin-token.
Colours are for terminals, and not with NO_COLOR. What cannot be undone is asked for; without a terminal it takes --yes.

Examples:
  ctl keys create --plan pro --name acme       issue a key
  ctl keys show <id>                           its limits, what it has used, its ban
  ctl keys explain --request <request id>      why a request was refused, to the request left
  ctl keys rotate <id> --grace 24h             a new secret; the old one works for a day
  ctl bans list
  ctl bans lift <id>
  ctl plans set free --minute 120 --reason "launch week"
  ctl plans rollback
  ctl usage --from 2026-11-01 --csv            what every key has used, by day
  ctl doctor                                   is everything as it should be?
  ctl --json keys list --name acme

Exit codes:
  0  done
  1  fault: no gateway answers, it failed, the settings are bad, or the doctor found one
  2  usage: the command, an option or a value is wrong
  3  not found: no such key or plan
  4  conflict: somebody else was quicker, or the data cannot be read
  5  not confirmed`,
  );

// Whoever reads no further, as `head` does, has what they wanted.
process.stdout.on('error', (fault: NodeJS.ErrnoException) => {
  if (fault.code !== 'EPIPE') throw fault;
  process.exit();
});

const session = new Session(process.env, () => program.opts());
addKeyCommands(program, session);
addBanCommands(program, session);
addPlanCommands(program, session);
addUsageCommand(program, session);
addDoctorCommand(program, session, () => {
  process.exitCode = EXIT.fault;
});
for (const command of program.commands) command.showHelpAfterError('(--help after any command tells more)');

await program.parseAsync().catch((fault: unknown) => {
  process.exitCode = exitCodeOf(fault);
  // Commander has said already what was wrong with the command.
  if (!(fault instanceof CommanderError)) report(fault as Error);
});

/** @throws what is no fault that an operator can do something about */
function exitCodeOf(fault: unknown): number {
  if (fault instanceof CommanderError) return fault.exitCode === 0 ? EXIT.done : EXIT.usage;
  if (fault instanceof NotConfirmed) return EXIT.notConfirmed;
  if (fault instanceof SettingsError) return EXIT.fault;
  if (!(fault instanceof AdminError)) throw fault;
  if (fault.status === 400) return EXIT.usage;
  if (fault.status === 404) return EXIT.notFound;
  return fault.status === 409 ? EXIT.conflict : EXIT.fault;
}

function report({ message }: Error): void {
  process.stderr.write(`${program.opts().json ? JSON.stringify({ message }) : message}\n`);
}
