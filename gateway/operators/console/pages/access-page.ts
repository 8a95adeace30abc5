import type { IssuedToken, TokensAnswer, TokenView } from '../../api/answers.ts';
import { callApi, get } from '../api.ts';
import { ask } from '../dialog.ts';
import { html } from '../html.ts';
import { ActionButton } from '../parts/action-button.ts';
import { When } from '../parts/pieces.ts';
import { type Column, Table } from '../parts/table.ts';
import { showOnce } from '../parts/whole-key.ts';
import { usePolled } from '../polled.ts';
import { ROLE_WORDS, roleInWords } from '../rights.ts';
import { tell } from '../toast.ts';
import { whyField } from '../who.ts';

const EVERY_MS = 10_000;

type Changed = () => Promise<void>;

/** Lists who may use this console, the API and the command line: tokens with a name and a role. */
export function AccessPage() {
  const { value, fault, refresh } = usePolled(
    'tokens',
    EVERY_MS,
    async () => (await get<TokensAnswer>('/tokens')).body.tokens,
  );
  const columns: readonly Column<TokenView>[] = [
    { title: 'Name', show: ({ id, name }) => html`<span class="name">${name}</span><code class="id">${id}</code>` },
    { title: 'Role', show: ({ role }) => roleInWords(role) },
    { title: 'Since', show: ({ createdAt }) => html`<${When} at=${createdAt} />` },
    {
      title: 'Action',
      show: (token) =>
        html`<${ActionButton} kind="small danger" needs="admin" onClick=${() => askToRevoke(token, refresh)}>Revoke<span class="unseen"> ${token.name}</span><//>`,
    },
  ];
  return html`
    <div class="page-head">
      <h1>Access</h1>
      <${ActionButton} kind="main" needs="admin" onClick=${() => askForToken(refresh)}>Create token<//>
    </div>
    <p class="note">Give each person or program its own token. The audit log records its name with each change.</p>
    <section class="card" aria-label="Tokens">
      <${Table} label="Tokens" columns=${columns} rows=${value} idOf=${({ id }: TokenView) => id}
        fault=${fault}
        empty="There are no named tokens. Only the shared operators’ token is accepted." />
    </section>
  `;
}

function askForToken(changed: Changed): void {
  ask({
    title: 'Create token',
    fields: [
      { name: 'name', label: 'Name', maxlength: 100, hint: 'The person or program that gets the token.' },
      { name: 'role', label: 'Role', options: Object.entries(ROLE_WORDS) },
    ],
    confirm: 'Create token',
    async act({ name = '', role }) {
      const { body } = await callApi<IssuedToken>('POST', '/tokens', { body: { name, role } });
      await changed();
      showOnce(`The token of ${name}`, 'Token', body.token);
    },
  });
}

function askToRevoke({ id, name }: TokenView, changed: Changed): void {
  ask({
    title: `Revoke the token of ${name}?`,
    content: html`<p>Requests with this token will be refused.</p>`,
    fields: [whyField],
    confirm: 'Revoke token',
    isDangerous: true,
    async act({ reason }) {
      await callApi('DELETE', `/tokens/${encodeURIComponent(id)}`, { reason });
      await changed();
      tell(`The token of ${name} has been revoked.`);
    },
  });
}
