import { type Command, Option } from 'commander';
import { PLAN_NAMES } from '../../../limiter/plans.ts';
import type { Tags } from '../../../limiter/tags.ts';
import type { IssuedKey, KeyView, ReindexAnswer } from '../../api/answers.ts';
import { addExplain } from '../key-explain.ts';
import { addFind } from '../key-find.ts';
import { addKeyLists } from '../key-lists.ts';
import { findKey, findToConfirm, KEY, pathTo } from '../key-names.ts';
import { addSecretCommands } from '../key-secrets.ts';
import { describeKey, describeKeys, pathOf } from '../key-text.ts';
import type { Session } from '../session.ts';
import { timeText } from '../time-text.ts';
import { lengthText, limit, limitOrNone, orNull, REASON, seconds, tag, tagName, time } from '../values.ts';

export const PLACE = 1;

/** Adds `keys …`: all commands for single API keys, except bans. */
export function add(program: Command, session: Session): void {
  const keys = program.command('keys').description('issue, show, change and revoke API keys');
  addKeyLists(keys, session);
  addFind(keys, session);
  addShow(keys, session);
  addIssuing(keys, session);
  addChanging(keys, session);
  addSecretCommands(keys, session);
  addExplain(keys, session);
}

function addShow(keys: Command, session: Session): void {
  keys
    .command('show')
    .description('show a key: its limits, both buckets as they stand now, its use, its ban')
    .argument('<key>', KEY)
    .action(async (key: string) => showKey(session, await session.call<KeyView>('GET', await pathTo(session, key))));
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
    .option('--tag <name=value>', 'a tag to sort it by; can be repeated', tag)
    .option(...REASON)
    .addHelpText(
      'after',
      `
Examples:
  ctl keys create --plan pro --name acme --tag customer=acme --tag env=prod
  ctl keys create --plan enterprise --name big --minute 5000 --day 500000    both are required there`,
    )
    .action(async ({ expires, tag: tags, ...options }: { expires?: string; tag?: Tags }) => {
      const body = { ...options, expiresAt: expires, tags };
      showWholeKey(session, await session.call<IssuedKey>('POST', '/keys', body));
    });

  keys
    .command('rotate')
    .description('replace a secret of a key; the new one is shown this once, the old one works for the grace time')
    .argument('<key>', KEY)
    .requiredOption(
      '--grace <time>',
      'how long the old secret still works, as 90s, 15m, 24h or 7d; 0 ends it at once',
      seconds,
    )
    .option('--secret <id>', 'which secret is replaced, where several could be')
    .option('--expires <time>', 'when the new secret expires, as 2030-12-31T00:00:00Z; never for no expiry', endTime)
    .option(...REASON)
    .addHelpText(
      'after',
      `
Examples:
  ctl keys rotate 4fXk20LmQa9z --grace 24h
  ctl keys rotate 4fXk20LmQa9z --grace 0 --secret k3JtQz81    that one has leaked

The new secret has the name, the scope, the networks and the expiry of the one that it replaces. Both draw on the same limits.
If the answer was lost, rotate again: the unclaimed secret is replaced.`,
    )
    .action(async (key: string, { grace, secret, expires }: { grace: number; secret?: string; expires?: string }) => {
      const { id, title } = await findToConfirm(session, key);
      const which = secret === undefined ? 'Its secret' : `Its secret ${secret}`;
      await session.confirmForGood(
        `Rotate ${title}? ${which} ends ${grace === 0 ? 'at once' : `in ${lengthText(grace)}`}.`,
      );
      const expiresAt = expires === 'never' ? null : expires;
      const body = { graceSeconds: grace, secretId: secret, expiresAt };
      showWholeKey(session, await session.call<IssuedKey>('POST', `${pathOf(id)}/rotate`, body));
    });

  keys
    .command('reindex')
    .description('add working keys that are missing from the list of keys')
    .addHelpText('after', '\n`doctor` and `backup` report such keys: gateway:keys in Redis was lost or edited by hand.')
    .action(async () => {
      const answer = await session.call<ReindexAnswer>('POST', '/keys/reindex');
      session.print(answer, () => `Put into the list of keys: ${answer.reindexed}.`);
    });

  keys
    .command('revoke')
    .description('revoke a key for good; its next request is refused')
    .argument('<key>', KEY)
    .option(...REASON)
    .addHelpText('after', '\nTo be able to take it back, use `keys disable`.')
    .action(async (key: string) => {
      const { id, title } = await findToConfirm(session, key);
      await session.confirmForGood(`Revoke ${title} for good?`);
      await session.call('DELETE', pathOf(id));
      session.print({ id, revoked: true }, () => `Revoked ${id}.`);
    });
}

interface Changed {
  readonly minute?: number | 'none';
  readonly day?: number | 'none';
  readonly tag?: Tags;
  readonly untag?: readonly string[];
}

function addChanging(keys: Command, session: Session): void {
  const change = async (key: string, changes: unknown) =>
    showKey(session, await session.call<KeyView>('PATCH', await pathTo(session, key), changes));

  keys
    .command('set')
    .description('change the name, the plan, the own limits or the tags of a key; what was used stays used')
    .argument('<key>', KEY)
    .option('--name <name>', 'whose key it is')
    .addOption(new Option('--plan <plan>', 'the plan of the key').choices(PLAN_NAMES))
    .option('--minute <requests>', "requests a minute, in place of the plan's; none takes the plan's", limitOrNone)
    .option('--day <requests>', "requests a day, in place of the plan's; none takes the plan's", limitOrNone)
    .option('--tag <name=value>', 'a tag to add, or its new value; can be repeated', tag)
    .option('--untag <name>', 'a tag to remove; can be repeated', tagName)
    .option(...REASON)
    .addHelpText(
      'after',
      `
Examples:
  ctl keys set 4fXk20LmQa9z --plan business
  ctl keys set 4fXk20LmQa9z --minute 500 --day none
  ctl keys set 4fXk20LmQa9z --tag env=test --untag customer`,
    )
    .action(async (key: string, { minute, day, tag: added, untag: removed, ...others }: Changed) => {
      const given = { ...others, minute: orNull(minute), day: orNull(day) };
      if (added === undefined && removed === undefined) return await change(key, given);
      const path = await pathTo(session, key);
      const { tags } = await session.call<KeyView>('GET', path);
      const kept = Object.entries({ ...tags, ...added }).filter(([name]) => removed?.includes(name) !== true);
      showKey(session, await session.call<KeyView>('PATCH', path, { ...given, tags: Object.fromEntries(kept) }));
    });

  keys
    .command('expire')
    .description('expire a key, now or at a time; another expiry can be set later')
    .argument('<key>', KEY)
    .argument('[time]', 'when it ends, as 2030-12-31T00:00:00Z; now when left out; never takes the end away', endTime)
    .option(...REASON)
    .addHelpText(
      'after',
      '\nAn end that lies in the past is asked for; without a terminal it takes --yes.\n\nExamples:\n  ctl keys expire 4fXk20LmQa9z 2030-12-31T00:00:00Z\n  ctl keys expire 4fXk20LmQa9z never',
    )
    .action(async (key: string, at?: string) => {
      const { id, title } = await findKey(session, key);
      if (at === undefined) await session.confirmChange(`End ${title} now?`);
      else if (Date.parse(at) <= Date.now())
        await session.confirmForGood(
          `End ${title} now? ${timeText(at, process.stderr)} lies in the past.`,
          'Its next request would be refused',
        );
      const changes = { expiresAt: at === 'never' ? null : (at ?? new Date().toISOString()) };
      showKey(session, await session.call<KeyView>('PATCH', pathOf(id), changes));
    });

  keys
    .command('disable')
    .description('refuse a key until it is enabled again')
    .argument('<key>', KEY)
    .option(...REASON)
    .action((key: string) => change(key, { disabled: true }));

  keys
    .command('enable')
    .description('enable a disabled key')
    .argument('<key>', KEY)
    .option(...REASON)
    .action((key: string) => change(key, { disabled: false }));

  keys
    .command('reset')
    .description('give a key a fresh start: both buckets full, no ban, no place in line, no strikes')
    .argument('<key>', KEY)
    .option(...REASON)
    .addHelpText(
      'after',
      `
Its next ban has its first length again. What it has used stays counted. \`bans lift\` does the same without filling
the buckets.

Example:
  ctl keys reset 4fXk20LmQa9z --reason "their retry loop is fixed"`,
    )
    .action(async (key: string) =>
      showKey(session, await session.call<KeyView>('POST', `${await pathTo(session, key)}/reset`)),
    );
}

/** Of `keys expire`. */
const endTime = (text: string): string => (text === 'never' ? text : time(text));

export const showKey = (session: Session, key: KeyView): void => session.print(key, () => describeKey(key));

const showWholeKey = (session: Session, key: IssuedKey): void =>
  session.print(key, () => `${describeKeys([key])}\n\nThe key, shown this once:\n${key.key}`);
