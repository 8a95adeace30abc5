import { render } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { author, keptToken, refresh, rememberAuthor, tokenName } from './api.ts';
import { type Content, html, Input, type InputSpec, notify } from './parts.ts';

/**
 * Dialogs with text, fields and an action to confirm. Only one dialog is open at a time.
 */

interface Question {
  readonly title: string;
  readonly fields?: readonly FieldSpec[];
  readonly confirm: string;
  readonly isDangerous?: boolean;
  /** Whether it holds what was typed in the dialog before it. */
  readonly isContinued?: true;
  /** Shown between the title and the fields. */
  readonly content?: Content;
  /** Whether a dialog without an action may close now. @param isPressed whether its button was pressed */
  mayClose?(isPressed: boolean): boolean;
  /**
   * Receives the values by name; empty ones are undefined. If it throws, the dialog stays open and shows the errors at
   * their fields. It may open the next dialog.
   */
  act?(values: Values): Promise<unknown>;
  readonly done?: string;
}

const place = document.body.appendChild(document.createElement('div'));
let asked = 0;
let isShownOnce = false;

/** Opens a dialog in place of the current one. After logout nothing is shown. */
export function ask(question: Question): void {
  if (keptToken() === null) return;
  const number = ++asked;
  isShownOnce = question.mayClose !== undefined;
  const close = () => number === asked && closeDialog();
  render(html`<${Dialog} key=${number} question=${question} onClose=${close} />`, place);
}

export function closeDialog(): void {
  isShownOnce = false;
  render(null, place);
  // The element that had the focus may no longer exist, for example after a key was revoked.
  if (document.activeElement === document.body) document.querySelector('main')?.focus();
}

/** Hides a form and keeps its content until the next login. A secret stays visible, because it is shown only once. */
export const pauseDialog = (): void => (isShownOnce ? undefined : place.querySelector('dialog')?.close());

export function resumeDialog(): void {
  const paused = place.querySelector<HTMLDialogElement>('dialog:not([open])');
  paused?.showModal();
}

const NO_FAULTS: { faults: Values; rest: string } = { faults: {}, rest: '' };

function Dialog({ question, onClose }: { question: Question; onClose(): void }) {
  const { title, confirm, isDangerous = false, isContinued = false, content, mayClose, act, done } = question;
  const [fields] = useState(() => withWho(question));
  const dialog = useRef<HTMLDialogElement>(null);
  const [{ faults, rest }, setFound] = useState(NO_FAULTS);
  const [isBusy, setBusy] = useState(false);

  // A layout effect runs in the same step as the change to the page, so that some element always has the focus.
  useLayoutEffect(() => {
    const shown = dialog.current;
    // The first field gets the focus. Closing returns it to the element that had it.
    shown?.showModal();
    return () => shown?.close();
  }, []);
  useLeaveGuard(() => isContinued || [...(dialog.current?.querySelector('form')?.elements ?? [])].some(isEdited));

  async function submit(event: SubmitEvent) {
    event.preventDefault();
    if (isBusy) return;
    if (mayClose !== undefined) return mayClose(true) ? onClose() : undefined;
    setFound(NO_FAULTS);
    setBusy(true);
    try {
      const form = event.target as HTMLFormElement;
      const values = valuesOf(form, fields);
      checkFields(form, fields, values);
      if (values.author !== undefined) rememberAuthor(values.author);
      await act?.(values);
      await refresh();
      if (done !== undefined) notify(done);
      onClose();
    } catch (thrown) {
      // After the next login, the operator can send the form again.
      if (keptToken() === null) return setBusy(false);
      const found = faultsOf(thrown as Error, fields);
      setFound(found);
      const [bad] = Object.keys(found.faults);
      if (bad !== undefined) dialog.current?.querySelector<HTMLElement>(`[name="${bad}"]`)?.focus();
    }
    setBusy(false);
  }

  // Escape and Back close a dialog. A script cannot always prevent that, so a dialog that may not close yet reopens.
  const closed = () => {
    const isPaused = mayClose === undefined && keptToken() === null;
    if (!isPaused) mayClose?.(false) === false ? dialog.current?.showModal() : onClose();
  };
  const kind = isDangerous ? 'main danger' : 'main';
  // For dangerous actions, Cancel has the focus, so that a repeated key press does not confirm them.
  const cancelButton = html`<button type="button" autofocus=${isDangerous} onClick=${onClose}>Cancel</button>`;
  return html`
    <dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${closed}>
      <form novalidate onSubmit=${submit}>
        <h2 id="dialog-title">${title}</h2>
        ${content}
        ${fields.map((field) => html`<${Field} key=${field.name} field=${field} fault=${faults[field.name]} />`)}
        <p class="fault" role="alert">${rest}</p>
        <p class="bar end">
          ${mayClose === undefined && cancelButton}
          <button class=${kind} aria-disabled=${isBusy}>${confirm}</button>
        </p>
      </form>
    </dialog>
  `;
}

/** Whether the operator has changed a field. A choice without a default begins with its first option. */
function isEdited(field: Element): boolean {
  if (field instanceof HTMLSelectElement) {
    const options = [...field.options];
    const initial = options.find(({ defaultSelected }) => defaultSelected) ?? options[0];
    return initial?.selected === false;
  }
  return (
    field instanceof HTMLInputElement && (field.value !== field.defaultValue || field.checked !== field.defaultChecked)
  );
}

/** Asks before the page is left or reloaded while `isNeeded`. */
function useLeaveGuard(isNeeded: () => boolean): void {
  useEffect(() => {
    const askBeforeLeaving = (event: Event) => isNeeded() && event.preventDefault();
    addEventListener('beforeunload', askBeforeLeaving);
    return () => removeEventListener('beforeunload', askBeforeLeaving);
  }, [isNeeded]);
}

/** Values or messages of a dialog, by the names of its fields. */
export type Values = Readonly<Record<string, string | undefined>>;

/** Errors of several fields, found before anything is sent. */
export class FieldFaults extends Error {
  readonly faults: Values;

  constructor(faults: Values) {
    super('Some fields are invalid.');
    this.faults = faults;
  }
}

/**
 * Reads a form by the names of its fields. Empty fields are undefined; boxes with the same name are joined with commas.
 * Numbers may be written as pages show them, such as `1,000`.
 */
function valuesOf(form: HTMLFormElement, fields: readonly FieldSpec[]): Values {
  const data = new FormData(form);
  const textOf = (name: string) => {
    const texts = data.getAll(name).map((one) => String(one).trim());
    const isNumber = fields.some((field) => field.name === name && field.type === 'number');
    return texts.map((text) => (isNumber && GROUPED.test(text) ? text.replaceAll(',', '') : text)).join();
  };
  return Object.fromEntries([...new Set(data.keys())].map((name) => [name, textOf(name) || undefined]));
}

const GROUPED = /^\d{1,3}(,\d{3})+$/;

/**
 * Finds required fields that are empty, texts that are too long, and times with missing parts, which a form treats as
 * empty.
 * @throws {FieldFaults}
 */
function checkFields(form: HTMLFormElement, fields: readonly FieldSpec[], values: Values): void {
  const isPartial = (name: string) => form.querySelector<HTMLInputElement>(`[name="${name}"]`)?.validity.badInput;
  const found = fields.flatMap(({ name, label, maxlength, required }) => {
    const fault = isPartial(name)
      ? PARTIAL
      : values[name] === undefined
        ? required
        : tooLong(label, values[name], maxlength);
    return fault === undefined ? [] : [[name, fault]];
  });
  if (found.length > 0) throw new FieldFaults(Object.fromEntries(found));
}

/** Reports a text that is too long: a browser that enforced `maxlength` would cut pasted text without a word. */
export const tooLong = (label: string, text: string, most = Number.POSITIVE_INFINITY): string | undefined =>
  [...text].length > most ? `${label} must have at most ${most} characters.` : undefined;

const PARTIAL = 'Enter both the date and the time, or clear the field.';

/** Splits the message about an invalid body by field. `rest` is the part that concerns none of them. */
function faultsOf(thrown: Error, fields: readonly FieldSpec[]): typeof NO_FAULTS {
  if (thrown instanceof FieldFaults) return { faults: thrown.faults, rest: '' };
  const parts = thrown.message
    .replace(/^The body is not valid: /, '')
    .replace(/\.$/, '')
    // Dialogs have a unit beside the number.
    .replace(
      / of seconds (from \d+) to (\d+)/,
      (_, from, most) => ` ${from}, and at most ${Number(most) / 86_400} days`,
    )
    .split('; ');
  const faults: Record<string, string> = {};
  const rest: string[] = [];
  for (const part of parts) {
    const field = fields.find(({ name }) => part.startsWith(`${name} `));
    if (field === undefined) rest.push(part);
    else faults[field.name] = `${field.label} ${part.slice(field.name.length + 1)}.`;
  }
  return { faults, rest: rest.length === 0 ? '' : `${rest.join('; ').replace(/[.?!]$/, '')}.` };
}

/** A labelled field with a hint, or with an error in place of the hint. */
export interface FieldSpec extends Omit<InputSpec, 'type'> {
  readonly hint?: Content;
  readonly value?: string;
  /** The error if the field is empty. Without it, the dialog leaves the check to the gateway. */
  readonly required?: string;
  /** With `boxes`, any number of options can be selected; with any other type, exactly one. */
  readonly type?: InputSpec['type'] | 'boxes';
}

function Field({ field, fault }: { field: FieldSpec; fault?: string | undefined }) {
  const { name, label, hint, type, value = '' } = field;
  const [id, noteId] = [`field-${name}`, `note-${name}`];
  const note = html`<span id=${noteId} class=${fault === undefined ? 'note' : 'note fault'}>${fault ?? hint}</span>`;
  if (type === 'boxes')
    return html`<fieldset class="field" aria-describedby=${noteId}><legend>${label}</legend>${boxesOf(field)}${note}</fieldset>`;
  return html`<div class="field"><label for=${id}>${label}</label>
    <${Input} field=${{ ...field, maxlength: undefined }} value=${value} id=${id} aria-describedby=${noteId} aria-invalid=${fault === undefined ? undefined : 'true'} />${note}
  </div>`;
}

const boxesOf = ({ name, value = '', options = [] }: FieldSpec) => html`
  <div class="bar">
    ${options.map(
      ([key, text]) =>
        html`<label class="box"
          ><input type="checkbox" name=${name} value=${key} defaultChecked=${value.split(',').includes(key)} /> ${text}</label
        >`,
    )}
  </div>
`;

const whoField: FieldSpec = {
  name: 'author',
  label: 'Who are you?',
  maxlength: 100,
  hint: 'Recorded in the audit log.',
  required: 'Your name is required.',
};

/** The fields of a question. If the operator's name is not known, the first change asks for it. */
function withWho({ fields = [], act }: Question): readonly FieldSpec[] {
  const isKnown = tokenName() !== undefined || author() !== '' || fields.some(({ name }) => name === 'author');
  return act === undefined || isKnown ? fields : [...fields, whoField];
}

/** The fields for the author and the required reason of a change. A named token already identifies the author. */
export const who = (reason = ''): readonly FieldSpec[] => [
  ...(tokenName() === undefined ? [{ ...whoField, hint: '', value: author() }] : []),
  { ...whyField, value: reason, hint: 'Recorded in the audit log with your name.', required: 'A reason is required.' },
];

/** The field for an optional reason. */
export const whyField: FieldSpec = {
  name: 'reason',
  label: 'Why?',
  maxlength: 500,
  hint: 'Recorded in the audit log. Optional.',
};

/** Shows a whole key, only once. Closing the dialog removes it from the page. */
export const showKey = (name: string, apiKey: string): void => showOnce(`The key of ${name}`, 'API key', apiKey);

/** Shows a secret, only once. If it was not copied, the operator must confirm before the dialog closes. */
export function showOnce(title: string, label: string, text: string): void {
  const closing = { mayClose: (_isPressed: boolean) => true };
  const content = html`<${WholeText} label=${label} text=${text} closing=${closing} />`;
  ask({ title, content, confirm: 'Done', mayClose: (isPressed) => closing.mayClose(isPressed) });
}

const NOT_COPIED = 'It has not been copied, and will not be shown again. Press Done once more to close this dialog.';

interface WholeTextProps {
  readonly label: string;
  readonly text: string;
  /** Decides whether the dialog may close. */
  readonly closing: { mayClose(isPressed: boolean): boolean };
}

function WholeText({ label, text, closing }: WholeTextProps) {
  const shown = useRef<HTMLTextAreaElement>(null);
  const [isCopied, setCopied] = useState(false);
  const [note, setNote] = useState('');
  closing.mayClose = (isPressed) => {
    if (!isCopied) setNote(NOT_COPIED);
    return isCopied || (isPressed && note === NOT_COPIED);
  };
  useLeaveGuard(() => !isCopied);

  function wasCopied() {
    setCopied(true);
    setNote('');
  }

  /** Has no effect if only part of the text is copied. */
  function wasCopiedByHand({
    currentTarget: { selectionStart, selectionEnd },
  }: {
    currentTarget: HTMLTextAreaElement;
  }) {
    if (selectionEnd - selectionStart === text.length) wasCopied();
  }

  /** Without a clipboard, for example on another host without TLS, the text is selected to be copied by hand. */
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      wasCopied();
    } catch {
      shown.current?.select();
      setNote('This browser does not allow pages to copy. The text is selected: copy it with the keyboard.');
    }
  }

  return html`
    <p>It is shown only once.</p>
    <div class="field">
      <label for="whole-key">${label}</label>
      <textarea id="whole-key" ref=${shown} rows="3" readonly spellcheck=${false} value=${text}
        onCopy=${wasCopiedByHand}></textarea>
      <span class="bar">
        <button type="button" onClick=${copy}>${isCopied ? 'Copied' : 'Copy'}</button>
        <span class="unseen" role="status">${isCopied ? 'Copied.' : ''}</span>
      </span>
      <span class="note fault" role="alert">${note}</span>
    </div>
  `;
}
