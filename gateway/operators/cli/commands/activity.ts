import { Option } from 'commander';
import { isPlanName } from '../../../limiter/plans.ts';
import { ACTIONS } from '../../../stores/words.ts';
import type { ActivityView } from '../../api/answers.ts';
import { readEntries } from '../../clients.ts';
import { asCsv, changesInWords } from '../../console/csv.ts';
import { AdminError } from '../admin-client.ts';
import type { Command } from '../command.ts';
import { findKey } from '../key.ts';
import type { Session } from '../session.ts';
import { type Column, table, timeText, withTimeTexts } from '../text.ts';
import { count, time } from '../values.ts';

type Filter = Readonly<Partial<Record<'actor' | 'action' | 'target' | 'from' | 'to', string>>>;

const SHOWN = 50;

export function add(program: Command, session: Session): void {
  program
    .sub('activity', 'show the audit log: who changed keys, bans, plans and tokens, when and why')
    .option('--actor <name>', 'only entries by this person or program')
    .addOption(new Option('--action <action>', 'only entries with this action').choices(ACTIONS))
    .option('--target <key>', 'only entries about this key (by its id or name), plan or token')
    .option('--from <time>', 'only entries since this RFC 3339 time', time)
    .option('--to <time>', 'only entries before this time', time)
    .option('--limit <number>', `maximum number of entries; default: ${SHOWN}, or all with --csv`, count)
    .option('--csv', 'print comma-separated values with a header (RFC 4180)')
    .notes(`
The audit log keeps the last ACTIVITY_LENGTH entries, which contain no secrets. Each is also a line in the gateway's
log. Changes made with redis-cli appear as \`by hand\`, without a name: changes to plans within seconds, changes to keys
and bans once a gateway finds them.

Examples:
  ctl activity --target 4fXk20LmQa9z
  ctl activity --action plan.change --limit 5
  ctl activity --from 2026-11-24T00:00:00Z --to 2026-11-25T00:00:00Z
  ctl activity --csv > activity.csv
  ctl --json activity --actor ann | jq '.activity[].target'`)
    .action(async ({ csv, limit, target, ...others }: Filter & { csv?: boolean; limit?: number }) => {
      const most = limit ?? (csv ? Number.POSITIVE_INFINITY : SHOWN);
      const found = target === undefined ? undefined : await targetOf(session, target);
      const asked = { ...others, ...(found && { target: found.id }) };
      const { activity: entries } = await readEntries(session.get, asked, most);
      if (entries.length === 0 && found?.fault !== undefined) throw found.fault;
      if (csv && !session.isJson) session.write(asCsv(entries));
      else session.print({ activity: entries }, () => describeActivity(entries));
    });
}

/**
 * A string that names no key may still be in the log, as the name of a token or of a revoked key.
 * @returns the id of the key, or the string itself and the error from the search
 */
async function targetOf(session: Session, given: string): Promise<{ id: string; fault?: AdminError }> {
  if (isPlanName(given.toLowerCase())) return { id: given };
  try {
    return { id: (await findKey(session, given)).id };
  } catch (fault) {
    if (fault instanceof AdminError && fault.status === 404) return { id: given, fault };
    throw fault;
  }
}

function describeActivity(entries: readonly ActivityView[]): string {
  if (entries.length === 0) return 'The audit log has no such entries.';
  const named = ({ target, targetName = target }: ActivityView) =>
    targetName === target ? target : `${target} (${targetName})`;
  const changed = ({ changes }: ActivityView) => withTimeTexts(changesInWords(changes)) || '-';
  const why: Column<ActivityView> = ['reason', ({ reason }) => reason || '-'];
  const at: Column<ActivityView> = ['at', ({ at }) => timeText(at)];
  return table(entries, [at, 'actor', 'action', ['target', named], 'via', ['changes', changed], why]);
}
