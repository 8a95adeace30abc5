import { callApi } from './api.js';
import { ask, field, inform } from './dialog.js';
import { button, element, setText, tell } from './dom.js';
import { PLANS } from './plan-rules.js';

/** What is asked before something is done with a key. Each ends with `changed`. */

export const pathOf = (id) => `/keys/${encodeURIComponent(id)}`;

const UNITS = [
  ['60', 'minutes'],
  ['3600', 'hours'],
  ['86400', 'days'],
];

/** Fields for a length of time, the first by the name that the gateway has for it. */
const lengthFields = (name, label, value) => [
  field({ name, label, value, inputmode: 'numeric', maxlength: '10' }),
  field({ name: 'unit', label: 'Unit', options: UNITS }),
];

/** A number as it was typed; null, which the gateway refuses in its words, for anything else. */
const numberOf = (text = '') => (/^\d{1,15}$/.test(text) ? Number(text) : null);

/** The same for what may be left out. */
const numberIfAny = (text) => (text === undefined ? undefined : numberOf(text));

const secondsOf = (text, unit) => (numberOf(text) === null ? null : numberOf(text) * Number(unit));

export function askForKey(changed) {
  const numeric = { inputmode: 'numeric', maxlength: '10' };
  ask({
    title: 'Issue a key',
    fields: [
      field({ name: 'name', label: 'Name', maxlength: '100', hint: 'Whose it is.' }),
      field({ name: 'plan', label: 'Plan', options: PLANS.map((plan) => [plan, plan]) }),
      field({ name: 'minute', label: 'Own limit a minute', hint: 'Only where the plan’s is not meant.', ...numeric }),
      field({ name: 'day', label: 'Own limit a day', ...numeric }),
      field({ name: 'expiresAt', label: 'Ends', type: 'datetime-local', hint: 'Never, where it is empty.' }),
    ],
    confirm: 'Issue',
    async act({ name, plan, minute, day, expiresAt }) {
      const ends = expiresAt && new Date(expiresAt).toISOString();
      const given = { name, plan, minute: numberIfAny(minute), day: numberIfAny(day), expiresAt: ends };
      const { body } = await callApi('POST', '/keys', { body: given });
      showKey(body);
      await changed();
    },
  });
}

/** A key that has two secrets keeps one of them beside the new one. */
const endsField = () =>
  field({
    name: 'ends',
    label: 'Ends now',
    options: [
      ['new', 'the newer secret, which nobody has got'],
      ['old', 'the older secret'],
    ],
    hint: 'It has two since its last rotation. The other works on for the grace time.',
  });

export function askForRotation({ id, name, oldSecretUntil }, changed) {
  ask({
    title: `Rotate ${name}`,
    content: [
      element('p', {}, 'The key gets a new secret. The one that it has works on for this long, on the same buckets:'),
    ],
    fields: [
      ...lengthFields('graceSeconds', 'Grace time', '60'),
      ...(oldSecretUntil === undefined ? [] : [endsField()]),
    ],
    confirm: 'Rotate',
    async act({ graceSeconds, unit, ends }) {
      const given = { graceSeconds: secondsOf(graceSeconds, unit), ends };
      const { body } = await callApi('POST', `${pathOf(id)}/rotate`, { body: given });
      showKey(body);
      await changed();
    },
  });
}

export function askForBan({ id, name }, changed) {
  ask({
    title: `Ban ${name}`,
    fields: [...lengthFields('seconds', 'For', '60'), field({ name: 'reason', label: 'Why?', maxlength: '500' })],
    confirm: 'Ban',
    isDangerous: true,
    async act({ seconds, unit, reason }) {
      await callApi('PUT', `${pathOf(id)}/ban`, { body: { seconds: secondsOf(seconds, unit), reason } });
      await changed();
      tell(`${name} is banned.`);
    },
  });
}

export function askForRevocation({ id, name }, changed) {
  ask({
    title: `Revoke ${name}?`,
    content: [
      element(
        'p',
        {},
        'Its next request is refused, and the key is gone for good. To stop it for a while, disable it.',
      ),
    ],
    confirm: 'Revoke for good',
    isDangerous: true,
    async act() {
      await callApi('DELETE', pathOf(id));
      await changed();
      tell(`${name} is revoked.`);
    },
  });
}

/** A whole key, this once: nothing of it is left on the page when the dialog is closed. */
function showKey({ name, key }) {
  const shown = element('input', { id: 'whole-key', readonly: true, value: key, spellcheck: 'false', class: 'key' });
  const note = element('p', { class: 'hint', role: 'status' });
  const copy = button('Copy', async () => setText(note, await copied(shown)), { class: 'main' });
  inform({
    title: `The key of ${name}`,
    content: [
      element('p', {}, 'This is the only time that it is shown.'),
      element('label', { for: 'whole-key' }, 'API key'),
      shown,
      element('p', { class: 'bar' }, copy),
      note,
    ],
    done: 'Done',
  });
}

/** Where the browser gives no page its clipboard, as without TLS on another host, it is marked to be copied by hand. */
async function copied(shown) {
  try {
    await navigator.clipboard.writeText(shown.value);
    return 'Copied.';
  } catch {
    shown.select();
    return 'This browser does not let pages copy. The key is marked: copy it with the keyboard.';
  }
}
