import type { IssuedSecret, KeyView, SecretView } from '../../api/answers.ts';
import { callApi, keyPath } from '../api.ts';
import { ask } from '../dialog.ts';
import type { Values } from '../dialog-values.ts';
import { html } from '../html.ts';
import { toIso, toLocal } from '../key-dialogs.ts';
import { tell } from '../toast.ts';
import { ActionButton } from './action-button.ts';
import type { FieldSpec } from './field.ts';
import { Card, When } from './pieces.ts';
import { type Column, Table } from './table.ts';
import { showKey } from './whole-key.ts';

type Changed = () => Promise<void>;

/** Lists the secrets of a key, which share its limits. */
export function KeySecrets({ of: key, changed }: { of: KeyView; changed: Changed }) {
  const columns: readonly Column<SecretView>[] = [
    {
      title: 'Name',
      show: ({ id, name }) => html`<span class="name wordy">${name}</span><code class="id">${id}</code>`,
    },
    {
      title: 'Allows',
      show: ({ scope }) => (scope.length === 2 ? 'Reading and writing' : scope[0] === 'read' ? 'Reading' : 'Writing'),
    },
    {
      title: 'From',
      show: ({ networks }) =>
        networks.length === 0 ? 'Anywhere' : html`<span class="wordy">${networks.join(', ')}</span>`,
    },
    { title: 'Last used', show: ({ lastUsedAt }) => whenOr(lastUsedAt, 'never') },
    {
      title: 'Expires',
      show: ({ expiresAt, unreadable }) =>
        whenOr(expiresAt, unreadable ? `cannot be read: ${unreadable.join(', ')}` : 'never'),
    },
    {
      title: 'Actions',
      show: (secret) => html`
        <span class="bar">
          <${ActionButton} kind="small" onClick=${() => askForSecretChanges(key, secret, changed)}>Change<span class="unseen"> ${secret.name}</span><//>
          <${ActionButton} kind="small danger" onClick=${() => askToRevoke(key, secret, changed)}>Revoke<span class="unseen"> ${secret.name}</span><//>
        </span>
      `,
    },
  ];
  const add = html`<${ActionButton} kind="small" onClick=${() => askForSecret(key, changed)}>Add a secret<//>`;
  return html`
    <${Card} title="Secrets" id="secrets-title" actions=${add}>
      <${Table} label="Secrets" columns=${columns} rows=${key.secrets} idOf=${({ id }: SecretView) => id}
        empty="There is no working secret left. Add one." />
    <//>
  `;
}

const whenOr = (at: string | undefined, otherwise: string) =>
  at === undefined ? html`<span class="note">${otherwise}</span>` : html`<${When} at=${at} />`;

const fieldsOf = (secret?: SecretView): FieldSpec[] => [
  { name: 'name', label: 'Name', value: secret?.name ?? '', maxlength: 100, hint: 'Where it is used.' },
  {
    name: 'scope',
    label: 'Allows',
    type: 'boxes',
    value: (secret?.scope ?? ['read', 'write']).join(),
    options: [
      ['read', 'Reading'],
      ['write', 'Writing'],
    ],
  },
  {
    name: 'networks',
    label: 'Only from these networks',
    value: secret?.networks.join(', ') ?? '',
    hint: 'Addresses and blocks such as 10.0.0.0/8, separated by commas. Leave empty for anywhere.',
  },
  {
    name: 'expiresAt',
    label: 'Expires',
    type: 'datetime-local',
    value: toLocal(secret?.expiresAt),
    hint: 'Empty: never.',
  },
];

const listOf = (text: string | undefined): string[] => (text ?? '').split(/[\s,]+/).filter((one) => one !== '');

const givenIn = ({ name = '', scope, networks }: Values) => ({
  name,
  scope: listOf(scope),
  networks: listOf(networks),
});

function askForSecret({ id, name }: KeyView, changed: Changed): void {
  ask({
    title: `Add a secret to ${name}`,
    fields: fieldsOf(),
    confirm: 'Add',
    async act(values) {
      const body = { ...givenIn(values), expiresAt: toIso(values.expiresAt) };
      const answer = await callApi<IssuedSecret>('POST', `${keyPath(id)}/secrets`, { body });
      await changed();
      showKey(name, answer.body.key);
    },
  });
}

const secretPath = (key: KeyView, secret: SecretView): string =>
  `${keyPath(key.id)}/secrets/${encodeURIComponent(secret.id)}`;

function askForSecretChanges(key: KeyView, secret: SecretView, changed: Changed): void {
  ask({
    title: `Change the secret ${secret.name}`,
    fields: fieldsOf(secret),
    confirm: 'Save',
    async act(values) {
      // An expiry that is not edited keeps its seconds, and may be in the past by now.
      const isSameEnd = (values.expiresAt ?? '') === toLocal(secret.expiresAt);
      const end = isSameEnd ? {} : { expiresAt: toIso(values.expiresAt) ?? null };
      await callApi('PATCH', secretPath(key, secret), { body: { ...givenIn(values), ...end } });
      await changed();
      tell(`The secret ${values.name ?? secret.name} has been changed.`);
    },
  });
}

function askToRevoke(key: KeyView, secret: SecretView, changed: Changed): void {
  ask({
    title: `Revoke the secret ${secret.name}?`,
    content: html`<p>Requests with it will be refused. The other secrets of ${key.name} stay as they are.</p>`,
    confirm: 'Revoke secret',
    isDangerous: true,
    async act() {
      await callApi('DELETE', secretPath(key, secret));
      await changed();
      tell(`The secret ${secret.name} has been revoked.`);
    },
  });
}
