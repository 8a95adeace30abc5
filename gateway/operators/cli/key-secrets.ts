import { type Command, Option } from 'commander';
import { SCOPES } from '../../limiter/credential.ts';
import type { IssuedSecret, KeyView, SecretView } from '../api/answers.ts';
import { findToConfirm, KEY, pathTo } from './key-names.ts';
import { pathOf } from './key-text.ts';
import type { Session } from './session.ts';
import { table } from './table.ts';
import { timeText } from './time-text.ts';
import { REASON } from './values.ts';

/** Commands for the secrets of a key. */

const SECRET_ID = 'the id of the secret, as `keys secrets list` shows it';

interface About {
  readonly name?: string;
  readonly scope?: readonly string[];
  readonly networks?: readonly string[];
  readonly expires?: string;
}

/** Adds `keys secrets …`, for several secrets that share one pair of buckets. */
export function addSecretCommands(keys: Command, session: Session): void {
  const secrets = keys.command('secrets').description('manage several secrets of one key, which share its limits');
  const ofSecret = (path: string, secretId: string) => `${path}/secrets/${encodeURIComponent(secretId)}`;

  secrets
    .command('list')
    .description('list the secrets of a key')
    .argument('<key>', KEY)
    .action(async (key: string) => {
      const { secrets: shown = [] } = await session.call<KeyView>('GET', await pathTo(session, key));
      session.print({ secrets: shown }, () => describeSecrets(shown));
    });

  withBounds(secrets.command('add'))
    .description('add a secret; the whole key is shown only once')
    .argument('<key>', KEY)
    .requiredOption('--name <name>', 'what it is for, such as "billing service"')
    .option(...REASON)
    .addHelpText(
      'after',
      `
Examples:
  ctl keys secrets add 4fXk20LmQa9z --name "billing service"
  ctl keys secrets add 4fXk20LmQa9z --name dashboard --scope read --networks 10.0.0.0/8 2001:db8::/32`,
    )
    .action(async (key: string, about: About) => {
      const path = `${await pathTo(session, key)}/secrets`;
      const added = await session.call<IssuedSecret>('POST', path, bodyOf(about));
      session.print(added, () => `Secret ${added.id}\n\nThe key, shown only once:\n${added.key}`);
    });

  withBounds(secrets.command('set'))
    .description('change the name, scope, networks or expiry of a secret')
    .argument('<key>', KEY)
    .argument('<secret>', SECRET_ID)
    .option('--name <name>', 'what it is for')
    .addOption(new Option('--anywhere', 'remove its networks').conflicts('networks'))
    .option(...REASON)
    .action(async (key: string, secretId: string, { anywhere, ...about }: About & { anywhere?: boolean }) => {
      const body = { ...bodyOf(about), ...(anywhere && { networks: [] }) };
      const path = ofSecret(await pathTo(session, key), secretId);
      const changed = await session.call<SecretView>('PATCH', path, body);
      session.print(changed, () => describeSecrets([changed]));
    });

  secrets
    .command('revoke')
    .description('revoke a secret; the others still work')
    .argument('<key>', KEY)
    .argument('<secret>', SECRET_ID)
    .option(...REASON)
    .action(async (key: string, secretId: string) => {
      const { id, title } = await findToConfirm(session, key);
      await session.confirmForGood(`Permanently revoke the secret ${secretId} of ${title}?`);
      await session.call('DELETE', ofSecret(pathOf(id), secretId));
      session.print({ id, secretId, revoked: true }, () => `Revoked the secret ${secretId} of ${id}.`);
    });
}

const withBounds = (command: Command): Command =>
  command
    .addOption(new Option('--scope <scope...>', 'read, write or both; default both').choices(SCOPES))
    .option('--networks <network...>', 'where it works: addresses or blocks such as 10.0.0.0/8; default anywhere')
    .option('--expires <time>', 'when it expires, such as 2030-12-31T00:00:00Z; never removes the expiry');

const bodyOf = ({ expires, ...about }: About) => ({ ...about, expiresAt: expires === 'never' ? null : expires });

export function describeSecrets(secrets: readonly SecretView[]): string {
  const rows = secrets.map((secret) => [
    secret.id,
    secret.name,
    secret.scope.join(', '),
    secret.networks.join(', ') || 'anywhere',
    timeText(secret.createdAt),
    secret.unreadable
      ? `cannot be read: ${secret.unreadable.join(', ')}`
      : secret.expiresAt && timeText(secret.expiresAt),
    secret.lastUsedAt === undefined ? 'never' : timeText(secret.lastUsedAt),
  ]);
  return table(['secret', 'name', 'scope', 'networks', 'created', 'expires', 'last used'], rows);
}
