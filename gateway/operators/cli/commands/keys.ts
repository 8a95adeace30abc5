import { Option } from 'commander';
import { SCOPES } from '../../../limiter/credential.ts';
import { PLAN_NAMES } from '../../../limiter/plans.ts';
import type { Tags } from '../../../limiter/tags.ts';
import type { IssuedKey, IssuedSecret, KeyView, ReindexAnswer, SecretView } from '../../api/answers.ts';
import type { AdminRequest } from '../admin-client.ts';
import type { Command } from '../command.ts';
import { describeKey, describeKeys, findKey, pathOf, pathTo } from '../key.ts';
import { addExplain, addFind, addKeyLists } from '../key-lists.ts';
import { type Found, findNamed, isShortId, type Kind } from '../named.ts';
import type { Session } from '../session.ts';
import { type Column, LAST_USED, table, timeText } from '../text.ts';
import { lengthText, limit, limitOrNone, orNull, seconds, tag, tagName, time } from '../values.ts';

export function add(program: Command, session: Session): void {
  const keys = program.sub('keys', 'issue, show, change and revoke API keys');
  addKeyLists(keys, session);
  addFind(keys, session);
  keys
    .sub('show <key>', 'show a key: its limits, the current state of both buckets, its usage and its ban')
    .action((key: string) => onKey(session, 'GET', key));
  addIssuing(keys, session);
  addChanging(keys, session);
  addSecretCommands(keys, session);
  addExplain(keys, session);
}

function addIssuing(keys: Command, session: Session): void {
  keys
    .sub('create', 'issue a key; the whole key is shown only once')
    .addOption(new Option('--plan <plan>', 'the plan of the key').choices(PLAN_NAMES).makeOptionMandatory())
    .requiredOption('--name <name>', 'the owner of the key')
    .option('--minute <requests>', "its own limit of requests per minute, instead of the plan's", limit)
    .option('--day <requests>', "its own limit of requests per day, instead of the plan's", limit)
    .option('--expires <time>', 'when it expires, such as 2030-12-31T00:00:00Z', time)
    .option('--tag <name=value>', 'a tag to group keys by; can be repeated', tag)
    .notes(`
Examples:
  ctl keys create --plan pro --name acme --tag customer=acme --tag env=prod
  ctl keys create --plan enterprise --name big --minute 5000 --day 500000    this plan requires both`)
    .change(async ({ expires, tag: tags, ...options }: { expires?: string; tag?: Tags }) => {
      const body = { ...options, expiresAt: expires, tags };
      showWholeKey(session, await session.call<IssuedKey>('POST', '/keys', body));
    });

  keys
    .sub(
      'rotate <key>',
      'replace a secret of a key; the new one is shown only once, and the old one works for the grace period',
    )
    .requiredOption(
      '--grace <time>',
      'how long the old secret keeps working, such as 90s, 15m, 24h or 7d; 0 revokes it at once',
      seconds,
    )
    .option('--secret <secret>', 'which secret to replace, by its id or name, if the key has several')
    .option('--expires <time>', 'when the new secret expires, such as 2030-12-31T00:00:00Z, or `never`', endTime)
    .notes(`
Examples:
  ctl keys rotate 4fXk20LmQa9z --grace 24h
  ctl keys rotate 4fXk20LmQa9z --grace 0 --secret k3JtQz81    after a leak

The new secret has the name, scope, networks and expiry of the old one. Both count against the same limits.
If the output was lost, rotate again: the unclaimed secret is replaced.`)
    .change(async (key: string, { grace, secret, expires }: { grace: number; secret?: string; expires?: string }) => {
      const { id, title } = await findKey(session, key, true);
      const replaced = secret === undefined ? undefined : await secretOf(id)(session, secret, true);
      const which = replaced === undefined ? 'Its secret' : `Its secret ${replaced.title}`;
      await session.confirmForGood(
        `Rotate ${title}? ${which} expires ${grace === 0 ? 'at once' : `in ${lengthText(grace)}`}.`,
      );
      const expiresAt = expires === 'never' ? null : expires;
      const body = { graceSeconds: grace, secretId: replaced?.id, expiresAt };
      showWholeKey(session, await session.call<IssuedKey>('POST', `${pathOf(id)}/rotate`, body));
    });

  keys
    .sub('reindex', 'add working keys that are missing from the list of keys')
    .notes(
      '\n`doctor` and `backup` report such keys. Keys go missing if gateway:keys in Redis is lost or edited by hand.',
    )
    .action(async () => {
      const answer = await session.call<ReindexAnswer>('POST', '/keys/reindex');
      session.print(answer, () => `Added to the list of keys: ${answer.reindexed}.`);
    });

  keys
    .sub('revoke <key>', 'permanently revoke a key; its next request is refused')
    .notes('\nTo be able to undo this, use `keys disable` instead.')
    .change(async (key: string) => {
      const { id, title } = await findKey(session, key, true);
      await session.confirmForGood(`Permanently revoke ${title}?`);
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
  keys
    .sub('set <key>', 'change the name, plan, own limits or tags of a key; only `keys reset` refills its buckets')
    .option('--name <name>', 'the owner of the key')
    .addOption(new Option('--plan <plan>', 'the plan of the key').choices(PLAN_NAMES))
    .option('--minute <requests>', "its own limit of requests per minute; `none` restores the plan's", limitOrNone)
    .option('--day <requests>', "its own limit of requests per day; `none` restores the plan's", limitOrNone)
    .option('--tag <name=value>', 'a tag to add or change; can be repeated', tag)
    .option('--untag <name>', 'a tag to remove; can be repeated', tagName)
    .notes(`
Examples:
  ctl keys set 4fXk20LmQa9z --plan business
  ctl keys set 4fXk20LmQa9z --minute 500 --day none
  ctl keys set 4fXk20LmQa9z --tag env=test --untag customer`)
    .change(async (key: string, { minute, day, tag: added, untag: removed, ...others }: Changed) => {
      const isTagged = added !== undefined || removed !== undefined;
      const tagChanges = { ...added, ...Object.fromEntries((removed ?? []).map((name) => [name, null])) };
      const given = { ...others, minute: orNull(minute), day: orNull(day), ...(isTagged && { tagChanges }) };
      await onKey(session, 'PATCH', key, '', given);
    });

  keys
    .sub('expire <key>', 'expire a key, now or at a given time; the expiry can be changed later')
    .argument(
      '[time]',
      'when it expires, such as 2030-12-31T00:00:00Z; default: now; `never` removes the expiry',
      endTime,
    )
    .notes(
      '\nAn expiry in the past requires confirmation, or --yes without a terminal.\n\nExamples:\n  ctl keys expire 4fXk20LmQa9z 2030-12-31T00:00:00Z\n  ctl keys expire 4fXk20LmQa9z never',
    )
    .change(async (key: string, at?: string) => {
      const { id, title } = await findKey(session, key);
      if (at === undefined) await session.confirmChange(`Expire ${title} now?`);
      else if (Date.parse(at) <= Date.now())
        await session.confirmForGood(
          `Expire ${title} now? ${timeText(at, process.stderr)} is in the past.`,
          "The key's next request would be refused",
        );
      const changes = { expiresAt: at === 'never' ? null : (at ?? new Date().toISOString()) };
      showKey(session, await session.call<KeyView>('PATCH', pathOf(id), changes));
    });

  keys
    .sub('disable <key>', 'refuse requests with a key until it is enabled again')
    .change((key: string) => onKey(session, 'PATCH', key, '', { disabled: true }));

  keys
    .sub('enable <key>', 'enable a disabled key')
    .change((key: string) => onKey(session, 'PATCH', key, '', { disabled: false }));

  keys
    .sub('reset <key>', 'fill both buckets of a key, and clear its ban, its place in line and its strikes')
    .notes(`
The next ban on the key is as short as a first one. Its usage is kept. \`bans lift\` does the same without filling the
buckets.

Example:
  ctl keys reset 4fXk20LmQa9z --reason "their retry loop is fixed"`)
    .change((key: string) => onKey(session, 'POST', key, '/reset'));
}

/** Reads a time, or `never`. */
const endTime = (text: string): string => (text === 'never' ? text : time(text));

/** Calls the admin API about the key with this id or name, and prints the key. */
export async function onKey(
  session: Session,
  method: AdminRequest['method'],
  given: string,
  below = '',
  body?: unknown,
): Promise<void> {
  showKey(session, await session.call<KeyView>(method, `${await pathTo(session, given)}${below}`, body));
}

const showKey = (session: Session, key: KeyView): void => session.print(key, () => describeKey(key));

const showWholeKey = (session: Session, key: IssuedKey): void =>
  session.print(key, () => `${describeKeys([key])}\n\nThe key, shown only once:\n${key.key}`);

const SCOPE: Column<SecretView> = ['scope', ({ scope }) => scope.join(', ')];

const KIND: Kind<SecretView> = {
  noun: 'secret',
  isId: isShortId,
  columns: [
    SCOPE,
    ['created', ({ createdAt }) => timeText(createdAt, process.stderr)],
    ['expires', ({ expiresAt }) => expiresAt && timeText(expiresAt, process.stderr)],
  ],
};

/** Finds a secret of a key, as `findNamed` does. */
const secretOf =
  (keyId: string) =>
  async (session: Session, given: string, isForGood = false): Promise<Found> =>
    await findNamed(session, KIND, given, (await session.get<KeyView>(pathOf(keyId))).secrets, isForGood);

interface About {
  readonly name?: string;
  readonly scope?: readonly string[];
  readonly networks?: readonly string[];
  readonly expires?: string;
}

function addSecretCommands(keys: Command, session: Session): void {
  const secrets = keys.sub('secrets', 'manage the secrets of a key, which share its limits');
  const ofSecret = (keyId: string, secretId: string) => `${pathOf(keyId)}/secrets/${encodeURIComponent(secretId)}`;

  secrets.sub('list <key>', 'list the secrets of a key').action(async (key: string) => {
    const { secrets: shown = [] } = await session.get<KeyView>(await pathTo(session, key));
    session.print({ secrets: shown }, () => describeSecrets(shown));
  });

  withBounds(secrets.sub('add <key>', 'add a secret; the whole key is shown only once'))
    .requiredOption('--name <name>', 'what the secret is for, such as "billing service"')
    .notes(`
Examples:
  ctl keys secrets add 4fXk20LmQa9z --name "billing service"
  ctl keys secrets add 4fXk20LmQa9z --name dashboard --scope read --networks 10.0.0.0/8 2001:db8::/32`)
    .change(async (key: string, about: About) => {
      const { expiresAt, ...others } = bodyOf(about);
      const body = { ...others, expiresAt: expiresAt ?? undefined };
      const added = await session.call<IssuedSecret>('POST', `${await pathTo(session, key)}/secrets`, body);
      session.print(added, () => `Secret ${added.id}\n\nThe key, shown only once:\n${added.key}`);
    });

  withBounds(secrets.sub('set <key> <secret>', 'change the name, scope, networks or expiry of a secret'))
    .option('--name <name>', 'what the secret is for')
    .addOption(new Option('--anywhere', 'remove its networks, so that it works anywhere').conflicts('networks'))
    .change(async (key: string, secret: string, { anywhere, ...about }: About & { anywhere?: boolean }) => {
      const body = { ...bodyOf(about), ...(anywhere && { networks: [] }) };
      const { id } = await findKey(session, key);
      const { id: secretId } = await secretOf(id)(session, secret);
      const changed = await session.call<SecretView>('PATCH', ofSecret(id, secretId), body);
      session.print(changed, () => describeSecrets([changed]));
    });

  secrets
    .sub('revoke <key> <secret>', 'revoke a secret; the others keep working')
    .change(async (key: string, secret: string) => {
      const { id, title } = await findKey(session, key, true);
      const { id: secretId, title: which } = await secretOf(id)(session, secret, true);
      await session.confirmForGood(`Permanently revoke the secret ${which} of ${title}?`);
      await session.call('DELETE', ofSecret(id, secretId));
      session.print({ id, secretId, revoked: true }, () => `Revoked the secret ${secretId} of ${id}.`);
    });
}

const withBounds = (command: Command): Command =>
  command
    .addOption(new Option('--scope <scope...>', 'read, write or both; default: both').choices(SCOPES))
    .option('--networks <network...>', 'addresses or blocks from which it works, such as 10.0.0.0/8; default: anywhere')
    .option('--expires <time>', 'when it expires, such as 2030-12-31T00:00:00Z; `never` removes the expiry', endTime);

const bodyOf = ({ expires, ...about }: About) => ({ ...about, expiresAt: expires === 'never' ? null : expires });

function describeSecrets(secrets: readonly SecretView[]): string {
  const expiry = ({ unreadable, expiresAt }: SecretView) =>
    unreadable ? `cannot be read: ${unreadable.join(', ')}` : expiresAt && timeText(expiresAt);
  return table(secrets, [
    ['secret', ({ id }) => id],
    'name',
    SCOPE,
    ['networks', ({ networks }) => networks.join(', ') || 'anywhere'],
    ['created', ({ createdAt }) => timeText(createdAt)],
    ['expires', expiry],
    LAST_USED,
  ]);
}
