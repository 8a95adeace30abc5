import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, callApi, keepToken } from '../api.ts';
import { rememberAuthor } from '../author.ts';
import { html } from '../html.ts';

const WRONG_TOKEN = 'This is not the token of this gateway.';

/** Asks for the operators' token. It is kept only once the gateway has accepted it. */
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
    // A text that does not fit into a header is not a token, and could not be sent.
    if (!/^[\x21-\x7e]+$/.test(typed)) return setFault(WRONG_TOKEN);
    try {
      await callApi('GET', '/plans', { token: typed });
      keepToken(typed);
      rememberAuthor(name.current?.value.trim() ?? '');
      onDone();
    } catch (thrown) {
      setFault(inWords(thrown as Error));
      token.current?.select();
    }
  }

  // The field has no name, so that a form submitted by the browser itself cannot put the token into the URL.
  return html`
    <main class="log-in">
      <h1><span class="logo" aria-hidden="true"></span>Animal store gateway</h1>
      <form class="card" onSubmit=${submit}>
        <h2>Log in</h2>
        <div class="field">
          <label for="token">Admin token</label>
          <input
            id="token"
            ref=${token}
            type="password"
            autocomplete="off"
            spellcheck=${false}
            required
            aria-describedby="token-hint"
          />
          <span id="token-hint" class="note">
            <code>ADMIN_TOKEN</code> or the content of <code>DATA_DIR/admin-token</code>. It stays in this
            tab until you log out or close it.
          </span>
        </div>
        <div class="field">
          <label for="name">Your name</label>
          <input id="name" ref=${name} autocomplete="off" maxlength="100" aria-describedby="name-hint" />
          <span id="name-hint" class="note">Recorded with your changes. Named tokens already carry a name.</span>
        </div>
        <p class="fault" role="alert">${fault}</p>
        <button class="main">Log in</button>
      </form>
    </main>
  `;
}

function inWords(fault: Error): string {
  if (fault instanceof ApiError && fault.status === 401) return WRONG_TOKEN;
  if (fault instanceof ApiError && fault.status === 429)
    return `Too many wrong tokens from this address. Wait ${fault.retryAfter} s before the next attempt.`;
  return fault.message;
}
