import { Option } from 'commander';
import { ROLES } from '../../../stores/words.ts';
import type { IssuedToken, TokensAnswer, TokenView } from '../../api/answers.ts';
import type { Command } from '../command.ts';
import { findNamed, isShortId, type Kind } from '../named.ts';
import type { Session } from '../session.ts';
import { table, timeText } from '../text.ts';

export function add(program: Command, session: Session): void {
  const tokens = program.sub('tokens', "create, list and revoke operators' tokens");

  tokens
    .sub('create', 'create a token; it is shown only once')
    .requiredOption('--name <name>', 'the owner; the audit log shows this name')
    .addOption(new Option('--role <role>', 'what the token may do').choices(ROLES).makeOptionMandatory())
    .notes(`
A viewer can read everything and change nothing. An operator can also change keys, bans and plans. An admin can also
create and revoke tokens, and restore backups. Use the token as ADMIN_TOKEN, or enter it in the console.

Examples:
  ctl tokens create --name ann --role viewer
  ctl tokens create --name "billing service" --role operator`)
    .change(async ({ name, role }: { name: string; role: string }) => {
      const made = await session.call<IssuedToken>('POST', '/tokens', { name, role });
      session.print(made, () => `Token ${made.id} of ${name}, ${role}\n\nThe token, shown only once:\n${made.token}`);
    });

  tokens.sub('list', 'list the tokens, except ADMIN_TOKEN').action(async () => {
    const { tokens: shown } = await session.get<TokensAnswer>('/tokens');
    session.print({ tokens: shown }, () => (shown.length === 0 ? 'There are no tokens.' : describeTokens(shown)));
  });

  tokens.sub('revoke <token>', 'revoke a token; its next request is refused').change(async (token: string) => {
    const { id, title } = await findToken(session, token);
    await session.confirmForGood(`Permanently revoke the token ${title}?`);
    await session.call('DELETE', `/tokens/${encodeURIComponent(id)}`);
    session.print({ id, revoked: true }, () => `Revoked the token ${id}.`);
  });
}

const KIND: Kind<TokenView> = {
  noun: 'token',
  isId: isShortId,
  columns: ['role', ['created', ({ createdAt }) => timeText(createdAt, process.stderr)]],
};

async function findToken(session: Session, given: string) {
  const { tokens } = await session.get<TokensAnswer>('/tokens');
  return await findNamed(session, KIND, given, tokens, true);
}

const describeTokens = (tokens: readonly TokenView[]): string =>
  table(tokens, ['id', 'name', 'role', ['created', ({ createdAt }) => timeText(createdAt)]]);
