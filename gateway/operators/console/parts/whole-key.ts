import { useRef, useState } from 'preact/hooks';
import { ask } from '../dialog.ts';
import { html } from '../html.ts';

/** Shows a whole key, only once. Nothing of it stays on the page when the dialog is closed. */
export const showKey = (name: string, apiKey: string): void => showOnce(`The key of ${name}`, 'API key', apiKey);

/** The same for any secret text. */
export const showOnce = (title: string, label: string, text: string): void =>
  // The dialog that asked closes first.
  void setTimeout(() =>
    ask({
      title,
      content: html`<${WholeText} label=${label} text=${text} />`,
      confirm: 'Done',
      isOnlyShown: true,
    }),
  );

function WholeText({ label, text }: { label: string; text: string }) {
  const shown = useRef<HTMLInputElement>(null);
  const [note, setNote] = useState('');

  /** If the browser offers no clipboard, as on another host without TLS, the key is selected to be copied by hand. */
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      setNote('Copied.');
    } catch {
      shown.current?.select();
      setNote('This browser does not let pages copy. It is marked: copy it with the keyboard.');
    }
  }

  return html`
    <p>This is the only time that it is shown.</p>
    <div class="field">
      <label for="whole-key">${label}</label>
      <span class="bar">
        <input id="whole-key" ref=${shown} class="mono" readonly spellcheck=${false} value=${text} />
        <button type="button" onClick=${copy}>Copy</button>
      </span>
      <span class="note" role="status">${note}</span>
    </div>
  `;
}
