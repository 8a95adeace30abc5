import type { BansAnswer, KeySummary } from '../../api/answers.ts';
import type { Command } from '../command.ts';
import { describeBans, KEY } from '../key.ts';
import type { Session } from '../session.ts';
import { REASON, seconds } from '../values.ts';
import { onKey } from './keys.ts';

export function add(program: Command, session: Session): void {
  const bans = program.command('bans').description('list, lift and set bans');

  bans
    .command('list')
    .description('list active bans')
    .action(async () => {
      const running: KeySummary[] = [];
      for await (const { bans } of session.parts<BansAnswer>('/bans')) running.push(...bans);
      session.print({ bans: running }, () => (running.length === 0 ? 'No key is banned.' : describeBans(running)));
    });

  bans
    .command('lift')
    .description('lift the ban on a key and clear its strikes; the key works again within a second')
    .argument('<key>', KEY)
    .option(...REASON)
    .action((key: string) => onKey(session, 'DELETE', key, '/ban'));

  bans
    .command('set')
    .description('ban a key for some time; this replaces an active ban')
    .argument('<key>', KEY)
    .requiredOption('--for <time>', 'how long, such as 90s, 15m, 24h or 7d', seconds)
    .requiredOption('--reason <text>', 'the reason; shown with the ban')
    .notes('\nExample:\n  ctl bans set 4fXk20LmQa9z --for 2h --reason "scrapes everything"')
    .action((key: string, options: { for: number }) => onKey(session, 'PUT', key, '/ban', { seconds: options.for }));
}
