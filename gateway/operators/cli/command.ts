import { Command as Base } from 'commander';

/** A command of ctl, or a group of them. */
export class Command extends Base {
  declare readonly commands: readonly Command[];

  override createCommand(name?: string): Command {
    return new Command(name);
  }

  /** Adds notes and examples to the end of --help. */
  notes(text: string): this {
    return this.addHelpText('after', text);
  }
}
