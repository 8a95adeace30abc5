import type { BansAnswer, KeySummary } from '../../api/answers.ts';
import { bodyOf } from '../api.ts';
import { html } from '../html.ts';
import { askToLiftBan } from '../key-dialogs.ts';
import { ActionButton } from '../parts/action-button.ts';
import { KeyLink, Pager, When } from '../parts/pieces.ts';
import { type Column, Table } from '../parts/table.ts';
import { usePolled } from '../polled.ts';
import { navigate, type Route } from '../router.ts';
import { firstFilled } from '../whole-answers.ts';
import { number, planInWords } from '../words.ts';

const EVERY_MS = 3_000;

/** Lists the running bans, each with a button that lifts it. */
export function BansPage({ route: { query } }: { route: Route }) {
  const offset = Number(query.get('offset') ?? 0) || 0;
  const { value, fault, refresh } = usePolled(`bans ${offset}`, EVERY_MS, () =>
    firstFilled<BansAnswer>(bodyOf, '/bans', { offset: String(offset) }, ({ bans }) => bans),
  );
  const columns: readonly Column<KeySummary>[] = [
    { title: 'Key', show: (key) => html`<${KeyLink} ...${key} />` },
    { title: 'Plan', show: ({ plan }) => planInWords(plan) },
    { title: 'Until', show: ({ bannedUntil }) => bannedUntil !== undefined && html`<${When} at=${bannedUntil} />` },
    {
      title: 'Why',
      show: ({ banReason }) =>
        html`<span class="wordy">${banReason ?? 'Kept sending more than nine times its limit'}</span>`,
    },
    { title: 'Bans in a row', isFigure: true, show: ({ bans }) => number(bans) },
    { title: 'Refused since', isFigure: true, show: ({ banRefused = 0 }) => number(banRefused) },
    {
      title: 'Action',
      show: (key) =>
        html`<${ActionButton} kind="small" onClick=${() => askToLiftBan(key, refresh)}>Lift<span class="unseen"> ${key.name}</span><//>`,
    },
  ];
  const turn = (to: number | undefined) => navigate(`/console/bans${to === undefined ? '' : `?offset=${to}`}`);
  return html`
    <h1>Bans</h1>
    <p class="note">Each further ban of a key within a day is twice as long. A key that respects Retry-After is never banned.</p>
    <section class="card" aria-label="Bans">
      <${Table} label="Bans" columns=${columns} rows=${value?.bans} fault=${fault} idOf=${({ id }: KeySummary) => id}
        empty="No key is banned." />
      <${Pager} isNewest=${offset === 0} next=${value?.next} onTurn=${turn} />
    </section>
  `;
}
