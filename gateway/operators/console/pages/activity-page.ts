import type { ActivityAnswer, ActivityView } from '../../api/answers.ts';
import { get } from '../api.ts';
import { html } from '../html.ts';
import { When } from '../parts/pieces.ts';
import { type Column, Table } from '../parts/table.ts';
import { usePolled } from '../polled.ts';
import { addressOfKey, navigate, type Route } from '../router.ts';

const EVERY_MS = 5_000;
const SHOWN = 50;

const ACTIONS: Readonly<Record<ActivityView['action'], string>> = {
  'key.create': 'issued the key',
  'key.change': 'changed the key',
  'key.reset': 'reset the limits of',
  'key.rotate': 'rotated the key',
  'key.revoke': 'revoked the key',
  'key.restore': 'restored a key from a backup',
  'key.reindex': 'rebuilt the list of keys',
  'backup.make': 'made a backup of all keys',
  'secret.create': 'added a secret to',
  'secret.change': 'changed a secret of',
  'secret.revoke': 'ended a secret of',
  'ban.set': 'banned',
  'ban.lift': 'lifted the ban of',
  'plan.change': 'changed the plan',
  'token.create': 'made the token',
  'token.revoke': 'ended the token',
};

const COLUMNS: readonly Column<ActivityView>[] = [
  { title: 'When', show: ({ at }) => html`<${When} at=${at} />` },
  { title: 'Who', show: ({ actor }) => html`<span class="wordy">${actor}</span>` },
  {
    title: 'What',
    show: ({ action, target }) => html`${ACTIONS[action]} <${Target} action=${action} target=${target} />`,
  },
  { title: 'Why', show: ({ reason }) => html`<span class="wordy">${reason || '–'}</span>` },
];

/** Who did what, when and why, the newest first. */
export function ActivityPage({ route: { query } }: { route: Route }) {
  const after = query.get('after');
  const path = `/activity?limit=${SHOWN}${after === null ? '' : `&after=${encodeURIComponent(after)}`}`;
  const { value, fault } = usePolled(path, EVERY_MS, async () => (await get<ActivityAnswer>(path)).body);
  const next = value?.next;
  return html`
    <h1>Activity</h1>
    <section class="card" aria-label="Activity">
      <${Table} label="Activity" columns=${COLUMNS} rows=${value?.activity} idOf=${({ id }: ActivityView) => id}
        fault=${fault}
        empty="Nobody has changed anything yet." />
      <p class="bar">
        ${after !== null && html`<a href="/console/activity">Newest</a>`}
        ${next !== undefined && html`<button type="button" onClick=${() => navigate(`/console/activity?after=${encodeURIComponent(next)}`)}>Older</button>`}
      </p>
    </section>
  `;
}

function Target({ action, target }: { action: string; target: string }) {
  if (action.startsWith('plan.')) return html`<a href="/console/plans">${target}</a>`;
  const [id = ''] = target.split('/');
  return /^[0-9A-Za-z]{12}$/.test(id)
    ? html`<a href=${addressOfKey(id)}><code>${id}</code></a>`
    : html`<span class="wordy">${target}</span>`;
}
