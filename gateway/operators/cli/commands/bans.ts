import type { BansAnswer, KeyView } from '../../api/answers.ts';
import type { Command } from '../command.ts';
import { describeBans } from '../key.ts';
import type { Session } from '../session.ts';
import { seconds, someText } from '../values.ts';
import { onKey } from './keys.ts';

export function add(program: Command, session: Session): void {
  const bans = program.sub('bans', 'list, lift and set bans');

  bans.sub('list', 'list active bans').action(async () => {
    const running: KeyView[] = [];
    for await (const { bans } of session.parts<BansAnswer>('/bans')) running.push(...bans);
    session.print({ bans: running }, () => (running.length === 0 ? 'No key is banned.' : describeBans(running)));
  });

  bans
    .sub('lift <key>', 'lift the ban on a key and clear its strikes; the key works again within a second')
    .change((key: string) => onKey(session, 'DELETE', key, '/ban'));

  bans
    .sub('set <key>', 'ban a key for some time; this replaces an active ban')
    .requiredOption('--for <time>', 'how long, such as 90s, 15m, 24h or 7d', seconds)
    .requiredOption('--reason <text>', 'the reason; shown with the ban', someText)
    .notes('\nExample:\n  ctl bans set 4fXk20LmQa9z --for 2h --reason "scrapes everything"')
    .action((key: string, options: { for: number }) => onKey(session, 'PUT', key, '/ban', { seconds: options.for }));
}
