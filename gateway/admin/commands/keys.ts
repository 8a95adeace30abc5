import { type Command, Option } from 'commander';
import { PLAN_NAMES } from '../../access/plans.ts';
import { addExplain } from './key-explain.ts';
import { describeKey, describeKeys, type KeyView } from './key-text.ts';
import type { Session } from './session.ts';
import { limit, limitOrNone, orNull, seconds } from './values.ts';

const ID = 'the public part of the key, as `keys list` shows it';

export const pathOf = (id: string): string => `/keys/${encodeURIComponent(id)}`;

interface KeyList {
  readonly total: number;
  readonly offset: number;
  readonly keys: readonly KeyView[];
  readonly next?: number;
}

/** Adds `keys …`: everything about single API keys but their bans. */
export function addKeyCommands(program: Command, session: Session): void {
  const keys = program.command('keys').description('issue, look at, change and revoke API keys');
  addReading(keys, session);
  addIssuing(keys, session);
  addChanging(keys, session);
  addExplain(keys, session);
}

function addReading(keys: Command, session: Session): void {
  keys
    .command('list')
    .description('list keys, the newest first')
    .option('--name <text>', 'only keys whose name holds this text, in any case')
    .option('--offset <number>', 'where to go on', '0')
    .option('--limit <number>', 'how many at most, up to 100', '100')
    .addHelpText('after', '\nExamples:\n  ctl keys list\n  ctl keys list --name acme --json')
    .action(async (options: { name?: string; offset: string; limit: string }) => {
      const list = await listKeys(session, options);
      const next = list.next === undefined ? '' : `; more with --offset ${list.next}`;
      session.print(list, () => `${describeKeys(list.keys)}\n\n${list.keys.length} of ${list.total}${next}`);
    });

  keys
    .command('show')
    .description('show a key: its limits, both buckets as they stand now, its use, its ban')
    .argument('<id>', ID)
    .action(async (id: string) => showKey(session, (await session.call('GET', pathOf(id))) as KeyView));
}

/** The gateway looks at so many keys in one call; whoever searches goes on until the page is full. */
async function listKeys(session: Session, options: { name?: string; offset: string; limit: string }): Promise<KeyList> {
  const found: KeyView[] = [];
  let at = options.offset;
  for (;;) {
    const query = new URLSearchParams({ ...options, offset: at });
    const list = (await session.call('GET', `/keys?${query}`)) as KeyList;
    found.push(...list.keys);
    if (list.next === undefined || found.length > 0) return { ...list, offset: Number(options.offset), keys: found };
    at = String(list.next);
  }
}

function addIssuing(keys: Command, session: Session): void {
  keys
    .command('create')
    .description('issue a key; the whole key is shown this once')
    .addOption(new Option('--plan <plan>', 'the plan of the key').choices(PLAN_NAMES).makeOptionMandatory())
    .requiredOption('--name <name>', 'whose key it is')
    .option('--minute <requests>', "requests a minute, in place of the plan's", limit)
    .option('--day <requests>', "requests a day, in place of the plan's", limit)
    .option('--expires <time>', 'when it ends, as 2030-12-31T00:00:00Z')
    .addHelpText(
      'after',
      `
Examples:
  ctl keys create --plan pro --name acme
  ctl keys create --plan enterprise --name big --minute 5000 --day 500000    both are required there`,
    )
    .action(async ({ expires, ...options }: { expires?: string }) => {
      showWholeKey(session, (await session.call('POST', '/keys', { ...options, expiresAt: expires })) as WholeKey);
    });

  keys
    .command('rotate')
    .description('give a key a new secret, shown this once; the old one is good for the grace time')
    .argument('<id>', ID)
    .requiredOption(
      '--grace <time>',
      'how long the old secret still works, as 90s, 15m, 24h or 7d; 0 ends it at once',
      seconds,
    )
    .addOption(
      new Option(
        '--ends <which>',
        'of the two secrets that a key has in a grace time, the one that ends at once',
      ).choices(['new', 'old']),
    )
    .addHelpText(
      'after',
      `
Examples:
  ctl keys rotate 4fXk20LmQa9z --grace 24h
  ctl keys rotate 4fXk20LmQa9z --grace 24h --ends new    the answer of the last rotation was lost: that secret ends

Both secrets draw on the same limits. A key has two at most: to rotate again within the grace time, say which one ends.`,
    )
    .action(async (id: string, { grace, ends }: { grace: number; ends?: 'new' | 'old' }) => {
      const other =
        ends === undefined ? 'Its secret' : `Its ${ends === 'new' ? 'newer' : 'older'} secret ends at once, the other`;
      await session.confirmForGood(`Rotate ${id}? ${other} ends ${grace === 0 ? 'at once' : `in ${grace} seconds`}.`);
      const body = { graceSeconds: grace, ends };
      showWholeKey(session, (await session.call('POST', `${pathOf(id)}/rotate`, body)) as WholeKey);
    });

  keys
    .command('revoke')
    .description('revoke a key for good; its next request is refused')
    .argument('<id>', ID)
    .addHelpText('after', '\nTo be able to take it back, use `keys disable`.')
    .action(async (id: string) => {
      await session.confirmForGood(`Revoke ${id} for good?`);
      await session.call('DELETE', pathOf(id));
      session.print({ id, revoked: true }, () => `Revoked ${id}.`);
    });
}

interface OwnLimits {
  readonly minute?: number | 'none';
  readonly day?: number | 'none';
}

function addChanging(keys: Command, session: Session): void {
  const change = async (id: string, changes: unknown) =>
    showKey(session, (await session.call('PATCH', pathOf(id), changes)) as KeyView);

  keys
    .command('set')
    .description('change the name, the plan or the own limits of a key; what was used stays used')
    .argument('<id>', ID)
    .option('--name <name>', 'whose key it is')
    .addOption(new Option('--plan <plan>', 'the plan of the key').choices(PLAN_NAMES))
    .option('--minute <requests>', "requests a minute, in place of the plan's; none takes the plan's", limitOrNone)
    .option('--day <requests>', "requests a day, in place of the plan's; none takes the plan's", limitOrNone)
    .addHelpText(
      'after',
      '\nExamples:\n  ctl keys set 4fXk20LmQa9z --plan business\n  ctl keys set 4fXk20LmQa9z --minute 500 --day none',
    )
    .action((id: string, { minute, day, ...others }: OwnLimits) =>
      change(id, { ...others, minute: orNull(minute), day: orNull(day) }),
    );

  keys
    .command('expire')
    .description('end a key, now or at a time; it can be given another end later')
    .argument('<id>', ID)
    .argument('[time]', 'when it ends, as 2030-12-31T00:00:00Z; now when left out; never takes the end away')
    .addHelpText(
      'after',
      '\nExamples:\n  ctl keys expire 4fXk20LmQa9z 2030-12-31T00:00:00Z\n  ctl keys expire 4fXk20LmQa9z never',
    )
    .action((id: string, time = new Date().toISOString()) => change(id, { expiresAt: time === 'never' ? null : time }));

  keys
    .command('disable')
    .description('refuse a key until it is enabled again')
    .argument('<id>', ID)
    .action((id: string) => change(id, { disabled: true }));

  keys
    .command('enable')
    .description('let a disabled key in again')
    .argument('<id>', ID)
    .action((id: string) => change(id, { disabled: false }));
}

type WholeKey = KeyView & { readonly key: string };

export const showKey = (session: Session, key: KeyView): void => session.print(key, () => describeKey(key));

const showWholeKey = (session: Session, key: WholeKey): void =>
  session.print(key, () => `${describeKeys([key])}\n\nThe key, shown this once:\n${key.key}`);
