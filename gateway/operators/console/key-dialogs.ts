import { PLAN_NAMES } from '../../limiter/plans.ts';
import { readTags, TAG_NAME_RULE, TAG_VALUE_RULE, type Tags, tagChangesTo, writeTags } from '../../limiter/tags.ts';
import type { IssuedKey, KeyView } from '../api/answers.ts';
import { callApi, keyPath } from './api.ts';
import { ask, FieldFaults, type FieldSpec, showKey, whyField } from './dialog.ts';
import { addressOf } from './page-names.ts';
import { html, notify } from './parts.ts';
import { navigate } from './router.ts';
import { planInWords, toIso, toLocal } from './words.ts';

/** The dialogs for actions on a key. */

/** Parses a number that was typed in. Returns null for anything else, so that the gateway's own message is shown. */
const numberOf = (text: string | undefined): number | null =>
  text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : null;

/** The fields for a duration. @param name the name of the first field, as in the admin API */
const lengthFields = (name: string, label: string, value: string): FieldSpec[] => [
  { name, label, value, type: 'number' },
  { name: 'unit', label: 'Unit', options: Object.entries({ 60: 'minutes', 3600: 'hours', 86400: 'days' }) },
];

function secondsOf(text: string | undefined, unit: string | undefined): number | null {
  const length = numberOf(text);
  return length === null ? null : length * Number(unit);
}

/** The form fields for a key, filled with its values; without a key, the fields for a new one. */
const fieldsOf = (key?: KeyView): FieldSpec[] => [
  { name: 'name', label: 'Name', value: key?.name ?? '', maxlength: 100, hint: key ? '' : 'The owner of the key.' },
  {
    name: 'plan',
    label: 'Plan',
    value: key?.plan ?? 'free',
    options: PLAN_NAMES.map((plan) => [plan, planInWords(plan)]),
    hint: key ? 'A change does not refill the buckets. To refill them, reset the limits.' : '',
  },
  {
    name: 'minute',
    label: 'Own limit per minute',
    value: key?.minute?.toString() ?? '',
    type: 'number',
    hint: 'Leave empty for the plan’s limit.',
  },
  { name: 'day', label: 'Own limit per day', value: key?.day?.toString() ?? '', type: 'number' },
  {
    name: 'expiresAt',
    label: 'Expires',
    value: toLocal(key?.expiresAt),
    type: 'datetime-local',
    hint: `Leave empty for no expiry.${key ? ' A time in the past makes the key expire at once.' : ''}`,
  },
  {
    name: 'tags',
    label: 'Tags',
    value: writeTags(key?.tags) ?? '',
    hint: 'Labels to group keys by, such as customer=acme, env=prod.',
  },
];

/** @throws {FieldFaults} for invalid tags */
function tagsOf(text = ''): Tags {
  const tags = readTags(text);
  if (tags !== undefined) return tags;
  const rule = `A name has ${TAG_NAME_RULE}. A value has ${TAG_VALUE_RULE}.`;
  throw new FieldFaults({
    tags: `Up to ten tags, such as customer=acme, env=prod. Each name can be used once. ${rule}`,
  });
}

export function askForKey(): void {
  ask({
    title: 'Issue a key',
    fields: fieldsOf(),
    confirm: 'Issue',
    async act({ name, plan, minute, day, expiresAt, tags }) {
      const own = { ...(minute && { minute: numberOf(minute) }), ...(day && { day: numberOf(day) }) };
      const given = { name: name ?? '', plan, ...own, expiresAt: toIso(expiresAt), tags: tags && tagsOf(tags) };
      const { body } = await callApi<IssuedKey>('POST', '/keys', { body: given });
      navigate(addressOf('key', { id: body.id }));
      showKey(body.name, body.key);
    },
  });
}

/** Sends only the fields that were changed in the form. */
export function askForChanges(key: KeyView): void {
  const fields = fieldsOf(key);
  ask({
    title: `Edit ${key.name}`,
    fields: [...fields, whyField],
    confirm: 'Save',
    async act(values) {
      const typed = fields.filter(({ name, value = '' }) => (values[name] ?? '') !== value);
      const made = typed.flatMap(({ name }) =>
        name === 'tags' ? tagChangesOf(key, values[name]) : [[name, changeOf(name, values[name])]],
      );
      if (made.length > 0)
        await callApi('PATCH', keyPath(key.id), { body: Object.fromEntries(made), reason: values.reason });
      notify(made.length === 0 ? 'Nothing was changed.' : `${values.name ?? key.name} has been changed.`);
    },
  });
}

/** Returns only the tags that differ from those shown, so that others' changes are kept. */
function tagChangesOf({ tags }: KeyView, typed: string | undefined) {
  const tagChanges = tagChangesTo(tagsOf(typed), tags);
  return Object.keys(tagChanges).length === 0 ? [] : [['tagChanges', tagChanges]];
}

function changeOf(field: string, value: string | undefined): unknown {
  if (field === 'expiresAt') return toIso(value) ?? null;
  if (field === 'minute' || field === 'day') return value === undefined ? null : (numberOf(value) ?? value);
  return value ?? '';
}

export function askForRotation({ id, name, secrets }: KeyView): void {
  const open = secrets.filter(({ expiresAt }) => expiresAt === undefined);
  const choice: FieldSpec = {
    name: 'secretId',
    label: 'Secret',
    options: open.map((secret) => [secret.id, `${secret.name} (${secret.id})`]),
    hint: 'The other secrets keep working.',
  };
  ask({
    title: `Rotate ${name}`,
    content: html`<p>The key gets a new secret. The old one keeps working for this long, within the same limits:</p>`,
    fields: [...lengthFields('graceSeconds', 'Grace period', '60'), ...(open.length > 1 ? [choice] : []), whyField],
    confirm: 'Rotate',
    async act({ graceSeconds, unit, secretId, reason }) {
      const given = { graceSeconds: secondsOf(graceSeconds, unit), secretId };
      const { body } = await callApi<IssuedKey>('POST', `${keyPath(id)}/rotate`, { body: given, reason });
      showKey(name, body.key);
    },
  });
}

export function askForBan({ id, name }: Pick<KeyView, 'id' | 'name'>): void {
  ask({
    title: `Ban ${name}`,
    fields: [...lengthFields('seconds', 'For', '60'), { name: 'reason', label: 'Why?', maxlength: 500 }],
    confirm: 'Ban',
    isDangerous: true,
    act: ({ seconds, unit, reason }) =>
      callApi('PUT', `${keyPath(id)}/ban`, { body: { seconds: secondsOf(seconds, unit) }, reason }),
    done: `${name} has been banned.`,
  });
}

export function askToLiftBan({ id, name }: Pick<KeyView, 'id' | 'name'>): void {
  ask({
    title: `Lift the ban on ${name}?`,
    content: html`<p>Its requests are admitted again, within its limits. Its place in line, its strikes and its series of bans are cleared, so the next ban is as short as the first one. Used requests are not restored; to restore them, reset the limits.</p>`,
    fields: [whyField],
    confirm: 'Lift ban',
    act: ({ reason }) => callApi('DELETE', `${keyPath(id)}/ban`, { reason }),
    done: `The ban on ${name} has been lifted.`,
  });
}

export function askToReset({ id, name }: KeyView): void {
  ask({
    title: `Reset the limits of ${name}?`,
    content: html`<p>The key gets a fresh start: its requests per minute and per day are all available again, any ban is lifted, and its place in line, its strikes and its series of bans are cleared.</p>
      <p>Lifting a ban alone does not restore used requests. The counts of admitted and refused requests are kept.</p>`,
    fields: [whyField],
    confirm: 'Reset limits',
    act: ({ reason }) => callApi('POST', `${keyPath(id)}/reset`, { body: {}, reason }),
    done: `The limits of ${name} have been reset.`,
  });
}

export function askToDisable({ id, name, state }: KeyView): void {
  const disabled = state !== 'disabled';
  ask({
    title: `${disabled ? 'Disable' : 'Enable'} ${name}?`,
    content: html`<p>${disabled ? 'Its requests get 401 until it is enabled again. Its secrets and its usage are kept.' : 'Its requests are admitted again, within its limits.'}</p>`,
    fields: [whyField],
    confirm: disabled ? 'Disable' : 'Enable',
    isDangerous: disabled,
    act: ({ reason }) => callApi('PATCH', keyPath(id), { body: { disabled }, reason }),
    done: `${name} is ${disabled ? 'disabled' : 'enabled'}.`,
  });
}

export function askForRevocation({ id, name }: KeyView): void {
  ask({
    title: `Revoke ${name}?`,
    content: html`<p>Its next request will be refused. This cannot be undone. To stop the key temporarily, disable it instead.</p>`,
    fields: [whyField],
    confirm: 'Revoke permanently',
    isDangerous: true,
    async act({ reason }) {
      await callApi('DELETE', keyPath(id), { reason });
      navigate('/console/keys');
      notify(`${name} has been revoked.`);
    },
  });
}
