import { useEffect, useRef, useState } from 'preact/hooks';
import { ROLE_WORDS } from '../../stores/words.ts';
import type { IssuedToken, TokensAnswer, TokenView } from '../api/answers.ts';
import { ApiError, callApi, keepToken, rememberAuthor, usePolled } from './api.ts';
import { ask, showOnce, tooLong, whyField } from './dialog.ts';
import { ActionButton, type Column, html, roleInWords, Table, When } from './parts.ts';

/** Access to the console, the admin API and the command line: named tokens, and the login form. */

/** Lists the tokens, each with a name and a role. */
export function AccessPage() {
  const { value, fault } = usePolled<TokensAnswer>('/tokens', 10_000);
  const columns: readonly Column<TokenView>[] = [
    { title: 'Name', show: ({ id, name }) => html`<span class="name">${name}</span><code class="id">${id}</code>` },
    { title: 'Role', show: ({ role }) => roleInWords(role) },
    { title: 'Created', show: ({ createdAt }) => html`<${When} at=${createdAt} />` },
    {
      title: 'Action',
      show: (token) =>
        html`<${ActionButton} kind="small danger" needs="admin" of=${token.name} onClick=${() => askToRevoke(token)}>Revoke<//>`,
    },
  ];
  return html`
    <div class="page-head">
      <h1>Access</h1>
      <${ActionButton} kind="main" needs="admin" onClick=${askForToken}>Create token<//>
    </div>
    <p class="note">Give each person or program its own token. The audit log records the token’s name with each change.</p>
    <section class="card" aria-label="Tokens">
      <${Table} label="Tokens" columns=${columns} rows=${value?.tokens} fault=${fault}
        empty="There are no named tokens. Only the shared operators’ token is accepted." />
    </section>
  `;
}

function askForToken(): void {
  ask({
    title: 'Create token',
    fields: [
      { name: 'name', label: 'Name', maxlength: 100, hint: 'The person or program that will use the token.' },
      { name: 'role', label: 'Role', options: Object.entries(ROLE_WORDS) },
    ],
    confirm: 'Create token',
    async act({ name = '', role }) {
      const { body } = await callApi<IssuedToken>('POST', '/tokens', { body: { name, role } });
      showOnce(`The token for ${name}`, 'Token', body.token);
    },
  });
}

function askToRevoke({ id, name }: TokenView): void {
  ask({
    title: `Revoke the token for ${name}?`,
    content: html`<p>Requests with this token will be refused.</p>`,
    fields: [whyField],
    confirm: 'Revoke token',
    isDangerous: true,
    act: ({ reason }) => callApi('DELETE', `/tokens/${encodeURIComponent(id)}`, { reason }),
    done: `The token for ${name} has been revoked.`,
  });
}

const WRONG_TOKEN = 'This gateway does not accept this token.';

/** Asks for an admin token, which is kept only after the gateway has accepted it. */
export function LogIn({ why, onDone }: { why: string; onDone(): void }) {
  const [fault, setFault] = useState(why);
  const token = useRef<HTMLInputElement>(null);
  const name = useRef<HTMLInputElement>(null);
  useEffect(() => {
    document.title = 'Log in – animal store gateway';
    token.current?.focus();
  }, []);

  async function submit(event: SubmitEvent) {
    event.preventDefault();
    setFault('');
    const typed = token.current?.value.trim() ?? '';
    // Text that is not allowed in a header cannot be a token, and could not be sent.
    if (!/^[\x21-\x7e]+$/.test(typed)) return setFault(WRONG_TOKEN);
    const author = name.current?.value.trim() ?? '';
    const fault = tooLong('Your name', author, 100);
    if (fault !== undefined) return setFault(fault);
    try {
      await callApi('GET', '/plans', { token: typed });
      keepToken(typed);
      rememberAuthor(author);
      onDone();
    } catch (thrown) {
      setFault(inWords(thrown as Error));
      token.current?.select();
    }
  }

  // The field has no name, so that a form submitted by the browser itself cannot put the token into the URL.
  return html`
    <main class="log-in">
      <h1 class="brand">Animal store gateway</h1>
      <form class="card" onSubmit=${submit}>
        <h2>Log in</h2>
        <div class="field">
          <label for="token">Admin token</label>
          <input id="token" ref=${token} type="password" autocomplete="off" spellcheck=${false} required
            aria-describedby="token-hint" />
          <span id="token-hint" class="note">
            <code>ADMIN_TOKEN</code> or the content of <code>DATA_DIR/admin-token</code>. The token stays in
            this tab until you log out or close the tab.
          </span>
        </div>
        <div class="field">
          <label for="name">Your name</label>
          <input id="name" ref=${name} autocomplete="off" aria-describedby="name-hint" />
          <span id="name-hint" class="note">Recorded with your changes. A named token already has a name.</span>
        </div>
        <p class="fault" role="alert">${fault}</p>
        <button class="main">Log in</button>
      </form>
    </main>
  `;
}

function inWords(fault: Error): string {
  if (!(fault instanceof ApiError)) return fault.message;
  if (fault.status === 401) return WRONG_TOKEN;
  if (fault.status !== 429) return fault.message;
  return `Too many wrong tokens from this address. Wait ${fault.retryAfter} s before the next attempt.`;
}
