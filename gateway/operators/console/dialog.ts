import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { faultsOf, type Values, valuesOf } from './dialog-values.ts';
import { type Content, html } from './html.ts';
import { Field, type FieldSpec } from './parts/field.ts';

/** Dialogs with text to read, fields to fill in, and an action to confirm. One is open at a time. */

export interface Question {
  readonly title: string;
  readonly fields?: readonly FieldSpec[];
  readonly confirm: string;
  readonly isDangerous?: boolean;
  /** Shown between the title and the fields. */
  readonly content?: Content;
  /** Whether there is nothing to confirm. */
  readonly isOnlyShown?: boolean;
  /** Whether a dialog without confirmation may close now. */
  mayClose?(): boolean;
  /**
   * Gets the values by name, with empty ones undefined. If it throws, the dialog stays open and shows the errors at
   * their fields. It may open the next dialog.
   */
  act?(values: Values): Promise<void>;
}

let open: ((question: Question | undefined) => void) | undefined;

export const ask = (question: Question): void => open?.(question);
export const closeDialogs = (): void => open?.(undefined);

export function DialogHost() {
  const [asked, setAsked] = useState<{ question: Question; number: number } | undefined>();
  useEffect(() => {
    let number = 0;
    open = (question) => setAsked(question && { question, number: ++number });
    return () => {
      open = undefined;
    };
  }, []);
  if (asked === undefined) return undefined;
  const close = () => setAsked((now) => (now === asked ? undefined : now));
  return html`<${Dialog} key=${asked.number} question=${asked.question} onClose=${close} />`;
}

function Dialog({ question, onClose }: { question: Question; onClose(): void }) {
  const { title, fields = [], confirm, isDangerous = false, content, isOnlyShown = false, mayClose, act } = question;
  const dialog = useRef<HTMLDialogElement>(null);
  const [faults, setFaults] = useState<Values>({});
  const [fault, setFault] = useState('');
  const [isBusy, setBusy] = useState(false);

  // This runs in the same step as the change of the page, because no element would have the focus in between.
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    // A repeated key press must not confirm an action that cannot be undone.
    const field = isDangerous ? null : shown?.querySelector<HTMLElement>('input, select, textarea');
    const first = field ?? shown?.querySelector('button[type=button]') ?? shown?.querySelector('button');
    (first as HTMLElement | null)?.focus();
    // Closing returns the focus to the element that had it.
    return () => shown?.close();
  }, []);

  async function submit(event: SubmitEvent) {
    event.preventDefault();
    if (isBusy) return;
    if (isOnlyShown) return (mayClose?.() ?? true) ? onClose() : undefined;
    setFaults({});
    setFault('');
    setBusy(true);
    try {
      await act?.(valuesOf(event.target as HTMLFormElement));
      onClose();
    } catch (thrown) {
      const found = faultsOf(thrown as Error, fields);
      setFaults(found.faults);
      setFault(found.rest);
      const [bad] = Object.keys(found.faults);
      if (bad !== undefined) dialog.current?.querySelector<HTMLElement>(`[name="${bad}"]`)?.focus();
    }
    setBusy(false);
  }

  // Escape closes a dialog, but not the only view of a key.
  const cancel = (event: Event) => {
    event.preventDefault();
    if (!isOnlyShown) onClose();
  };
  const kind = isDangerous ? 'main danger' : 'main';
  return html`
    <dialog ref=${dialog} aria-labelledby="dialog-title" onCancel=${cancel}>
      <form novalidate onSubmit=${submit}>
        <h2 id="dialog-title">${title}</h2>
        ${content}
        ${fields.map((field) => html`<${Field} key=${field.name} field=${field} fault=${faults[field.name]} />`)}
        <p class="fault" role="alert">${fault}</p>
        <p class="bar end">
          ${!isOnlyShown && html`<button type="button" onClick=${onClose}>Cancel</button>`}
          <button class=${kind} aria-disabled=${isBusy}>${confirm}</button>
        </p>
      </form>
    </dialog>
  `;
}
