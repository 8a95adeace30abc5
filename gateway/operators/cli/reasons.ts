import type { Command } from 'commander';
import type { Session } from './session.ts';

/** Commands that change something. Those that need more than a reason define the option themselves. */
const CHANGES: readonly string[] = [
  'keys create',
  'keys set',
  'keys expire',
  'keys disable',
  'keys enable',
  'keys reset',
  'keys rotate',
  'keys revoke',
  'keys secrets add',
  'keys secrets set',
  'keys secrets revoke',
  'bans lift',
  'tokens create',
  'tokens revoke',
];

/** Adds `--reason` to the commands that change something. Call this once all commands are there. */
export function addReasons(program: Command, session: Session): void {
  for (const name of CHANGES) commandAt(program, name).option('--reason <text>', 'why; recorded in the audit log');
  program.hook('preAction', (_, command) => {
    session.reason = command.opts<{ reason?: string }>().reason;
  });
}

function commandAt(program: Command, name: string): Command {
  let command = program;
  for (const word of name.split(' ')) {
    const next = command.commands.find((one) => one.name() === word);
    if (next === undefined) throw new RangeError(`There is no command ${name}.`);
    command = next;
  }
  return command;
}
