import { useEffect, useRef, useState } from 'preact/hooks';
import { ask } from '../dialog.ts';
import { html } from '../html.ts';

/** Shows a whole key, only once. Nothing of it stays on the page when the dialog is closed. */
export const showKey = (name: string, apiKey: string): void => showOnce(`The key of ${name}`, 'API key', apiKey);

/** The same for any secret text. It is asked once whether to close the dialog if the text was not copied. */
export const showOnce = (title: string, label: string, text: string): void => {
  const closing: Closing = { isCopied: false, warn: undefined };
  // The dialog that asked closes first.
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

/** What is known when the dialog is to be closed. */
interface Closing {
  isCopied: boolean;
  /** Asks whether to close it without a copy. Undefined once that was asked. */
  warn: (() => void) | undefined;
}

function WholeText({ label, text, closing }: { label: string; text: string; closing: Closing }) {
  const shown = useRef<HTMLTextAreaElement>(null);
  const [isCopied, setCopied] = useState(false);
  const [note, setNote] = useState('');
  useEffect(() => {
    closing.warn = () => setNote('It was not copied, and is not shown again. Press Done once more to close this.');
  }, []);

  function wasCopied() {
    closing.isCopied = true;
    setCopied(true);
    setNote('');
  }

  /** If the browser offers no clipboard, as on another host without TLS, the key is selected to be copied by hand. */
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      wasCopied();
    } catch {
      shown.current?.select();
      setNote('This browser does not let pages copy. It is marked: copy it with the keyboard.');
    }
  }

  return html`
    <p>This is the only time that it is shown.</p>
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
