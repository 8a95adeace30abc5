import { type Argument, Command as Base } from 'commander';
import { PLAN_NAMES } from '../../limiter/plans.ts';

/** The arguments that mean the same in all commands. */
const ARGUMENTS: Readonly<Record<string, string>> = {
  key: 'the id of the key, as shown by `keys list`, or its full name',
  secret: 'the id of the secret, as shown by `keys secrets list`, or its full name',
  token: 'the id of the token, as shown by `tokens list`, or its full name',
  plan: 'the plan',
};

/** A command of ctl, or a group of them. */
export class Command extends Base {
  declare readonly commands: readonly Command[];

  override createCommand(name?: string): Command {
    return new Command(name);
  }

  override createArgument(name: string, description = ARGUMENTS[name.slice(1, -1)]): Argument {
    const argument = super.createArgument(name, description);
    return name === '<plan>' ? argument.choices(PLAN_NAMES) : argument;
  }

  /** Adds a command. @param name its name and arguments, such as `show <key>` */
  sub(name: string, description: string): Command {
    return this.command(name).description(description) as Command;
  }

  /** Makes `help` explain subcommands of any depth. Commander's own explains only direct ones. */
  explainAll(): void {
    const groups = this.commands.filter(({ commands }) => commands.length > 0);
    for (const group of groups) group.explainAll();
    this.helpCommand('help [command...]');
    const explained = (names: readonly string[]): Command =>
      names.reduce<Command>(
        (group, name) =>
          group.commands.find((one) => one.name() === name) ?? group.error(`error: unknown command '${name}'`),
        this,
      );
    this.command('help', { hidden: true })
      .argument('[command...]')
      .action((names: string[]) => explained(names).help());
  }

  /** Adds notes and examples to the end of --help. */
  notes(text: string): this {
    return this.addHelpText('after', text);
  }

  /** Sets the action of a command that makes a change, and adds the option for the reason, which the session sends. */
  change(act: Parameters<this['action']>[0]): this {
    return this.option('--reason <text>', 'the reason; recorded in the audit log').action(act);
  }
}
