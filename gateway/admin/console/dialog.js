import { ApiError, faultsOf, Unreachable } from './api.js';
import { button, element, setText } from './dom.js';

/** Questions, as dialogs: something to read, fields to fill in, and what is done with them. */

let count = 0;

/**
 * A labelled field with room for what is wrong with it.
 * @param options of a choice: `[value, label]` each; any other field is an input of the given type
 */
export function field({ name, label, options, hint = '', value = '', type = 'text', ...attributes }) {
  const id = `field-${++count}`;
  const described = { id, name, 'aria-describedby': `${id}-note` };
  const input = options
    ? element('select', described, ...options.map(([key, text]) => element('option', { value: key }, text)))
    : element('input', { ...described, type, autocomplete: 'off', ...attributes });
  if (value !== '') input.value = value;
  const note = element('span', { id: `${id}-note`, class: 'note' }, hint);
  return {
    name,
    input,
    root: element('p', { class: 'field' }, element('label', { for: id }, label), input, note),
    get value() {
      return input.value.trim();
    },
    showFault: (fault) => markFault(input, note, fault, hint),
  };
}

/** Shows what is wrong with a field, or its hint when nothing is. */
export function markFault(input, note, fault, hint = '') {
  input.toggleAttribute('aria-invalid', fault !== undefined);
  if (fault !== undefined) input.setAttribute('aria-invalid', 'true');
  note.classList.toggle('fault', fault !== undefined);
  setText(note, fault ?? hint);
}

/**
 * Asks, and acts on the answer. It stays open, with what is wrong shown at the field, until that worked or was given up.
 * @param act gets the values by name, empty ones undefined; what it throws is shown
 */
export function ask({ title, content = [], fields = [], confirm, isDangerous = false, act }) {
  const fault = element('p', { class: 'fault', role: 'alert' });
  const yes = element('button', { class: isDangerous ? 'main danger' : 'main' }, confirm);
  const dialog = show(title, [...content, ...fields.map(({ root }) => root), fault], [yes], 'Cancel');
  // Where there is nothing to fill in, a key that is pressed once too often must not be a yes.
  if (fields.length === 0) dialog.querySelector('button[type=button]').focus();
  dialog.querySelector('form').addEventListener('submit', async (event) => {
    event.preventDefault();
    if (yes.getAttribute('aria-disabled') === 'true') return;
    clear(fields, fault);
    // Not disabled, which would take the keyboard away from it.
    yes.setAttribute('aria-disabled', 'true');
    try {
      await act(Object.fromEntries(fields.map(({ name, value }) => [name, value === '' ? undefined : value])));
      dialog.close();
    } catch (thrown) {
      showFaults(thrown, fields, fault);
    }
    yes.removeAttribute('aria-disabled');
  });
}

function clear(fields, fault) {
  for (const one of fields) one.showFault(undefined);
  setText(fault, '');
}

/** What is wrong with the values of fields, found before anybody was asked. */
export class FieldFaults extends Error {
  constructor(faults) {
    super('');
    this.faults = faults;
  }
}

function showFaults(thrown, fields, fault) {
  if (!(thrown instanceof ApiError || thrown instanceof Unreachable || thrown instanceof FieldFaults)) throw thrown;
  const names = fields.map(({ name }) => name);
  const { faults, rest } = thrown instanceof FieldFaults ? { ...thrown, rest: '' } : faultsOf(thrown, names);
  for (const one of fields) one.showFault(faults[one.name]);
  setText(fault, rest && thrown instanceof ApiError && rest !== thrown.message ? `${rest}.` : rest);
  fields.find(({ name }) => name in faults)?.input.focus();
}

/** Shows something to be read, and gone for good when it is closed: which Escape does not do at once. */
export function inform({ title, content, done }) {
  show(title, content, [], done).addEventListener('cancel', (event) => event.preventDefault());
}

function show(title, content, buttons, close) {
  const id = `dialog-${++count}`;
  const foot = element(
    'p',
    { class: 'bar' },
    ...buttons,
    button(close, () => dialog.close()),
  );
  const form = element('form', { novalidate: true }, element('h2', { id }, title), ...content, foot);
  const dialog = element('dialog', { 'aria-labelledby': id, close: () => dialog.remove() }, form);
  form.addEventListener('submit', (event) => event.preventDefault());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Ends every question, unanswered. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll('dialog')) dialog.close();
}

/** Whether a question is open: what it asks about is then left as it is shown. */
export const isAsking = () => document.querySelector('dialog[open]') !== null;
