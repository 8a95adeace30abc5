import { FieldFaults, field } from './dialog.js';
import { element } from './dom.js';

/** Who makes a change of plans, and why; and the change itself, to be looked at before. */

const AUTHOR = 'author';

/** Fields for both. The name is remembered in this tab. */
export function who({ reason = '' } = {}) {
  return [
    field({ name: 'author', label: 'Who are you?', value: sessionStorage.getItem(AUTHOR) ?? '', maxlength: '100' }),
    field({
      name: 'reason',
      label: 'Why?',
      value: reason,
      maxlength: '500',
      hint: 'Kept in the history, with your name.',
    }),
  ];
}

/** @throws {FieldFaults} where one of them is missing; what they may look like is the gateway's to say */
export function askedOf({ author, reason }) {
  const missing = Object.entries({ author, reason }).filter(([, value]) => value === undefined);
  if (missing.length > 0)
    throw new FieldFaults(Object.fromEntries(missing.map(([name]) => [name, `${name} is required`])));
  sessionStorage.setItem(AUTHOR, author);
  return { author, reason };
}

export const forgetAuthor = () => sessionStorage.removeItem(AUTHOR);

/** A line for each field: what it is, what it becomes. */
export function differences(changes) {
  if (changes.length === 0) return element('p', {}, 'Nothing is left to change: it is so already.');
  const lines = changes.map(({ field, from, to }) => {
    const before = element('del', {}, from ?? 'none');
    return element('li', {}, `${field}: `, before, ' → ', element('ins', {}, to ?? 'none'));
  });
  return element('ul', { class: 'differences' }, ...lines);
}
