import { useEffect, useRef, useState } from 'preact/hooks';
import { ask } from '../dialog.ts';
import { html } from '../html.ts';

/** Shows a whole key, only once. Closing the dialog removes it from the page. */
export const showKey = (name: string, apiKey: string): void => showOnce(`The key of ${name}`, 'API key', apiKey);

/** Does the same for any secret text. If the text was not copied, closing must be confirmed once. */
export const showOnce = (title: string, label: string, text: string): void => {
  const closing: Closing = { isCopied: false, warn: undefined };
  // The current dialog closes first.
  setTimeout(() =>
    ask({
      title,
      content: html`<${WholeText} label=${label} text=${text} closing=${closing} />`,
      confirm: 'Done',
      isOnlyShown: true,
      mayClose() {
        const { isCopied, warn } = closing;
        closing.warn = undefined;
        if (!isCopied) warn?.();
        return isCopied || warn === undefined;
      },
    }),
  );
};

/** What decides whether the dialog may close. */
interface Closing {
  isCopied: boolean;
  /** Asks whether to close without a copy. It is undefined once it has asked. */
  warn: (() => void) | undefined;
}

function WholeText({ label, text, closing }: { label: string; text: string; closing: Closing }) {
  const shown = useRef<HTMLTextAreaElement>(null);
  const [isCopied, setCopied] = useState(false);
  const [note, setNote] = useState('');
  useEffect(() => {
    closing.warn = () =>
      setNote('It has not been copied, and will not be shown again. Press Done once more to close this dialog.');
  }, []);

  function wasCopied() {
    closing.isCopied = true;
    setCopied(true);
    setNote('');
  }

  /** Without a clipboard, as on another host without TLS, the key is selected so that it can be copied by hand. */
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      wasCopied();
    } catch {
      shown.current?.select();
      setNote('This browser does not let pages copy. The text is selected: copy it with the keyboard.');
    }
  }

  return html`
    <p>It is shown only this once.</p>
    <div class="field">
      <label for="whole-key">${label}</label>
      <textarea id="whole-key" ref=${shown} class="mono" rows="3" readonly spellcheck=${false} value=${text}
        onCopy=${wasCopied}></textarea>
      <span class="bar">
        <button type="button" onClick=${copy}>${isCopied ? 'Copied' : 'Copy'}</button>
        <span class="unseen" role="status">${isCopied ? 'Copied.' : ''}</span>
      </span>
      <span class="note fault two-lines" role="alert">${note}</span>
    </div>
  `;
}
