import type { BucketView, IssuedSecret, KeyUsageAnswer, KeyView, SecretView } from '../api/answers.ts';
import { tooSmallInWords } from '../clients.ts';
import { ApiError, callApi, keyPath, usePolled } from './api.ts';
import { AuditCard } from './audit-log.ts';
import { Chart, type Series, type Step, timesUpTo, useTimeRange } from './chart.ts';
import { ask, type FieldSpec, showKey, type Values } from './dialog.ts';
import {
  askForBan,
  askForChanges,
  askForRevocation,
  askForRotation,
  askToDisable,
  askToLiftBan,
  askToReset,
} from './key-dialogs.ts';
import { addressOf } from './page-names.ts';
import {
  ActionButton,
  Card,
  type Column,
  Facts,
  html,
  Meter,
  Missing,
  notify,
  Stale,
  State,
  TableCard,
  TagChips,
  When,
} from './parts.ts';
import { RequestList } from './requests.ts';
import type { Route } from './router.ts';
import { clock, number, planInWords, relative, runningBan, toIso, toLocal } from './words.ts';

/** Shows everything about one key, and the actions on it. */
export function KeyPage({ route: { query } }: { route: Route }) {
  const id = query.get('id') ?? '';
  const { value: key, fault } = usePolled<KeyView>(keyPath(id), 2_000);
  const entries = addressOf('activity', { target: id });
  if (fault instanceof ApiError && fault.status === 404)
    return html`<h1>There is no such key</h1>
      <p>No key has the id <code>${id}</code>. It may have been revoked: <a href=${entries}>its entries in the audit log</a> show who revoked it. <a href="/console/keys">All keys</a></p>`;
  if (key === undefined)
    return html`<h1>Key <code>${id}</code></h1>
      <${Missing} fault=${fault} />`;
  return html`
    <p class="crumbs"><a href="/console/keys">Keys</a></p>
    <div class="page-head">
      <h1 class="wordy">${key.name}</h1>
      <${Actions} ...${key} />
    </div>
    <p class="under-title bar"><code class="id">${id}</code> <${State} state=${key.state} /> ${planInWords(key.plan)} plan <${TagChips} tags=${key.tags} /></p>
    <${Stale} fault=${fault} />
    <${StateNote} ...${key} />
    <div class="columns">
      <${Limits} ...${key} />
      <${About} ...${key} />
    </div>
    <${KeyUse} id=${id} />
    <${KeySecrets} ...${key} />
    <${Card} title="Last requests" actions=${html`<a href=${addressOf('requests', { keyId: id })}>All its requests</a>`}>
      <${RequestList} label="Last requests" asked=${{ keyId: id, limit: '10' }} hasKeys=${false} empty="There are no recent requests with this key." />
    <//>
    <${AuditCard} asked=${{ target: id }} isOfOneTarget=${true} />
  `;
}

function Actions(key: KeyView) {
  return html`
    <div class="bar">
      <${ActionButton} kind="main" onClick=${() => askForChanges(key)}>Edit<//>
      <${ActionButton} onClick=${() => askForRotation(key)}>Rotate<//>
      ${
        key.bannedUntil !== undefined
          ? html`<${ActionButton} onClick=${() => askToLiftBan(key)}>Lift ban<//>`
          : html`<${ActionButton} onClick=${() => askForBan(key)}>Ban<//>`
      }
      <${ActionButton} onClick=${() => askToReset(key)}>Reset limits<//>
      <${ActionButton} onClick=${() => askToDisable(key)}>${key.state === 'disabled' ? 'Enable' : 'Disable'}<//>
      <${ActionButton} kind="danger" onClick=${() => askForRevocation(key)}>Revoke<//>
    </div>
  `;
}

/** Explains why the key is not active, and until when. */
function StateNote(key: KeyView) {
  const { state, bannedUntil, banReason, expiresAt, tooSmall, waitSeconds } = key;
  if (bannedUntil !== undefined)
    return html`<p class="notice bad">
      Banned ${runningBan(key)}. Refusals are counted among the recent requests on all gateways.
      ${banReason === undefined ? ` The key kept sending more than nine times its limit, without a pause. The next ban within a day is twice as long.` : ` Reason: ${banReason}`}
    </p>`;
  if (state === 'disabled') return html`<p class="notice">An operator has disabled this key. Its requests get 401.</p>`;
  if (state === 'expired' && expiresAt !== undefined)
    return html`<p class="notice">Expired at ${clock(expiresAt)}, ${relative(expiresAt)}: its requests get 401.</p>`;
  if (state === 'unreadable')
    return html`<p class="notice bad">The data for this key cannot be read, so its requests get 503, except from gateways that have used it lately. Fix it by hand, or revoke the key.</p>`;
  if (tooSmall)
    return html`<p class="notice">The key has a ${tooSmallInWords(waitSeconds)}. Its line of refused requests has been longer than a minute for ten minutes. Raise its limit, or make its clients send fewer requests.</p>`;
  return undefined;
}

function Limits({ plan, minute, day, buckets }: KeyView) {
  const fact = (title: string, own: number | undefined, bucket: BucketView | undefined) => [
    html`${title} <span class="note">${own === undefined ? `from the ${planInWords(plan)} plan` : 'own limit'}</span>`,
    html`
      <${Meter} bucket=${bucket} label=${title} />
      ${bucket !== undefined && html`<span class="note">${number(bucket.remaining)} left${bucket.fullAt === undefined ? ', full' : `, full again at ${clock(bucket.fullAt)}`}</span>`}
    `,
  ];
  const facts = [fact('Requests per minute', minute, buckets?.minute), fact('Requests per day', day, buckets?.day)];
  return html`<${Card} title="Limits"><${Facts} of=${facts} /><//>`;
}

function About({ createdAt, expiresAt, lastUsedAt, admitted, refused, shadowed }: KeyView) {
  const when = (at: string | undefined, none: string) => (at === undefined ? none : html`<${When} at=${at} />`);
  const requests = html`
    ${`${number(admitted)} admitted, ${number(refused)} refused by limits `}
    ${shadowed !== undefined && html`<span class="note">${number(shadowed)} of these only because of shadow mode</span>`}
  `;
  const facts = [
    ['Last used', when(lastUsedAt, 'never')],
    ['Issued', when(createdAt, '–')],
    ['Expires', when(expiresAt, 'never')],
    ['Requests so far', requests],
  ];
  return html`<${Card} title="About"><${Facts} of=${facts} /><//>`;
}

/** Shows the usage of a key by minute, for up to an hour, and by day, for today and the 35 days before. */
function KeyUse({ id }: { id: string }) {
  const { value, fault } = usePolled<KeyUsageAnswer>(`${keyPath(id)}/usage`, 5_000);
  if (value === undefined) return html`<${Card} title="Usage"><${Missing} fault=${fault} /><//>`;
  const now = Date.parse(value.now) / 1_000;
  return html`
    <div class="columns">
      <${Use} title="Requests per minute" step="minute" used=${value.minutes} now=${now} bannedSince=${value.bannedCountedSince} />
      <${Use} title="Requests per day (UTC)" step="day" used=${value.days} now=${now} />
    </div>
  `;
}

interface UseProps {
  readonly title: string;
  readonly step: Step;
  /** Minutes or days without requests have no entry here; they are shown as 0. */
  readonly used: KeyUsageAnswer[`${Step}s`];
  readonly now: number;
  /** From when on requests refused by bans are known; before that, a count of zero is unknown. */
  readonly bannedSince?: string | undefined;
}

function Use({ title, step, used, now, bannedSince = '' }: UseProps) {
  const [length, actions] = useTimeRange(step);
  const times = timesUpTo(now, step, length);
  const byTime = new Map(used.map((one) => [Date.parse(one.at) / 1_000, one as KeyUsageAnswer['minutes'][number]]));
  const bars = (label: string, of: 'admitted' | 'refused' | 'banned', isKnown = (_at: number) => true): Series => {
    return {
      label,
      color: of,
      kind: 'bars',
      values: times.map((at) => byTime.get(at)?.[of] ?? (isKnown(at) ? 0 : null)),
    };
  };
  const series = [bars('Admitted', 'admitted'), bars('Refused', 'refused')];
  // Refusals by a ban are known only as long as the gateways remember the requests.
  if (step === 'minute') series.push(bars('Refused by a ban', 'banned', (at) => at * 1_000 >= Date.parse(bannedSince)));
  return html`<${Chart} ...${{ title, actions, step, times, series, format: number }} />`;
}

/** Lists the secrets of a key, which share its limits. */
function KeySecrets(key: KeyView) {
  const columns: readonly Column<SecretView>[] = [
    { title: 'Name', show: ({ id, name }) => html`<span class="name">${name}</span><code class="id">${id}</code>` },
    {
      title: 'Allows',
      show: ({ scope }) => (scope.length === 2 ? 'Reading and writing' : scope[0] === 'read' ? 'Reading' : 'Writing'),
    },
    {
      title: 'From',
      show: ({ networks }) =>
        networks.length === 0 ? 'Anywhere' : html`<span class="wordy">${networks.join(', ')}</span>`,
    },
    { title: 'Last used', show: ({ lastUsedAt }) => html`<${When} at=${lastUsedAt} none="never" />` },
    {
      title: 'Expires',
      show: ({ expiresAt, unreadable }) =>
        html`<${When} at=${expiresAt} none=${unreadable ? `cannot be read: ${unreadable.join(', ')}` : 'never'} />`,
    },
    {
      title: 'Actions',
      show: (secret) => html`
        <span class="bar">
          <${ActionButton} kind="small" of=${secret.name} onClick=${() => askForSecretChanges(key, secret)}>Change<//>
          <${ActionButton} kind="small danger" of=${secret.name} onClick=${() => askToRevoke(key, secret)}>Revoke<//>
        </span>
      `,
    },
  ];
  const add = html`<${ActionButton} kind="small" onClick=${() => askForSecret(key)}>Add a secret<//>`;
  return html`<${TableCard} title="Secrets" actions=${add} columns=${columns} rows=${key.secrets} empty="There is no working secret left. Add one." />`;
}

const fieldsOf = (secret?: SecretView): FieldSpec[] => [
  { name: 'name', label: 'Name', value: secret?.name ?? '', maxlength: 100, hint: 'Where it is used.' },
  {
    name: 'scope',
    label: 'Allows',
    type: 'boxes',
    value: (secret?.scope ?? ['read', 'write']).join(),
    options: Object.entries({ read: 'Reading', write: 'Writing' }),
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
    hint: 'Leave empty for no expiry.',
  },
];

const listOf = (text: string | undefined): string[] => (text ?? '').split(/[\s,]+/).filter((one) => one !== '');

const givenIn = ({ name = '', scope, networks }: Values) => ({
  name,
  scope: listOf(scope),
  networks: listOf(networks),
});

function askForSecret({ id, name }: KeyView): void {
  ask({
    title: `Add a secret to ${name}`,
    fields: fieldsOf(),
    confirm: 'Add',
    async act(values) {
      const body = { ...givenIn(values), expiresAt: toIso(values.expiresAt) };
      const answer = await callApi<IssuedSecret>('POST', `${keyPath(id)}/secrets`, { body });
      showKey(name, answer.body.key);
    },
  });
}

const secretPath = (key: KeyView, secret: SecretView): string =>
  `${keyPath(key.id)}/secrets/${encodeURIComponent(secret.id)}`;

function askForSecretChanges(key: KeyView, secret: SecretView): void {
  ask({
    title: `Change the secret “${secret.name}”`,
    fields: fieldsOf(secret),
    confirm: 'Save',
    async act(values) {
      // An expiry that is not edited is not sent: its field shows no seconds, and it may be in the past by now.
      const isSameEnd = (values.expiresAt ?? '') === toLocal(secret.expiresAt);
      const end = isSameEnd ? {} : { expiresAt: toIso(values.expiresAt) ?? null };
      await callApi('PATCH', secretPath(key, secret), { body: { ...givenIn(values), ...end } });
      notify(`The secret “${values.name ?? secret.name}” has been changed.`);
    },
  });
}

function askToRevoke(key: KeyView, secret: SecretView): void {
  ask({
    title: `Revoke the secret “${secret.name}”?`,
    content: html`<p>${
      key.secrets.length === 1
        ? `This is the only working secret of ${key.name}. Add another one first, or revoke the key.`
        : `Requests with this secret will be refused. The other secrets of ${key.name} keep working.`
    }</p>`,
    confirm: 'Revoke secret',
    isDangerous: true,
    act: () => callApi('DELETE', secretPath(key, secret)),
    done: `The secret “${secret.name}” has been revoked.`,
  });
}
