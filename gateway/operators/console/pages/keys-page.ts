import type { FoundAnswer, KeysAnswer, KeyView } from '../../api/answers.ts';
import { bodyOf } from '../api.ts';
import { html } from '../html.ts';
import { askForKey } from '../key-dialogs.ts';
import { ActionButton } from '../parts/action-button.ts';
import { type FilterSpec, Filters, filtersIn } from '../parts/filters.ts';
import { KeyLink, Meter, Pager, StateOf, TagChips, When } from '../parts/pieces.ts';
import { type Column, Table } from '../parts/table.ts';
import { PLAN_NAMES } from '../plan-fields.ts';
import { usePolled } from '../polled.ts';
import { addressOfKeys, navigate, type Route } from '../router.ts';
import { searchText } from '../search-text.ts';
import { firstFilled } from '../whole-answers.ts';
import { counted, planInWords, stateInWords } from '../words.ts';

const EVERY_MS = 5_000;
const SHOWN = 25;
/** Parts of the address that filter keys. They are the gateway's own filters. */
const FILTERS = ['name', 'tag', 'plan', 'state', 'near', 'sort'] as const;
const STATES = ['active', 'banned', 'disabled', 'expired', 'unreadable'];

const SPECS: readonly FilterSpec[] = [
  { name: 'name', label: 'Name contains' },
  { name: 'tag', label: 'Tag', placeholder: 'customer:acme' },
  { name: 'plan', label: 'Plan', options: PLAN_NAMES.map((plan) => [plan, planInWords(plan)] as const) },
  { name: 'state', label: 'State', options: STATES.map((state) => [state, stateInWords(state)] as const) },
  {
    name: 'near',
    label: 'Day used',
    options: [
      ['50', '50 % or more'],
      ['80', '80 % or more'],
      ['100', 'All of it'],
    ],
  },
  {
    name: 'sort',
    label: 'Order',
    otherwise: 'Newest first',
    options: [
      ['name', 'By name'],
      ['used', 'Most used of the day'],
      ['idle', 'Longest unused'],
    ],
  },
];

const COLUMNS: readonly Column<KeyView>[] = [
  { title: 'Key', show: (key) => html`<${KeyLink} ...${key} /><${TagChips} tags=${key.tags} />` },
  { title: 'Plan', show: ({ plan }) => planInWords(plan) },
  { title: 'State', show: StateOf },
  { title: 'Used this minute', show: ({ buckets }) => html`<${Meter} bucket=${buckets?.minute} label="Minute" />` },
  { title: 'Used today', show: ({ buckets }) => html`<${Meter} bucket=${buckets?.day} label="Day" />` },
  {
    title: 'Last used',
    show: ({ lastUsedAt }) =>
      lastUsedAt === undefined ? html`<span class="note">never</span>` : html`<${When} at=${lastUsedAt} />`,
  },
];

/** Lists all keys, or those that the address selects. */
export function KeysPage({ route: { query } }: { route: Route }) {
  const offset = Number(query.get('offset') ?? 0) || 0;
  const text = query.get('find');
  const filters = filtersIn(FILTERS, query);
  const chosen: Readonly<Record<string, string>> = text === null ? filters : { find: text };
  const asked = {
    ...(text === null ? { limit: String(SHOWN), ...filters } : { text: searchText(text).text }),
    offset: String(offset),
  };
  const path = text === null ? '/keys' : '/keys/find';
  const { value, fault } = usePolled<KeysAnswer | FoundAnswer>(`keys ${JSON.stringify(asked)}`, EVERY_MS, () =>
    firstFilled<KeysAnswer | FoundAnswer>(bodyOf, path, asked, ({ keys }) => keys),
  );
  const { sort: _sort, ...narrowing } = chosen;
  const empty =
    text !== null
      ? `No key, name or recent request matches “${text}”.`
      : Object.keys(narrowing).length > 0
        ? 'No key matches these filters.'
        : 'There are no keys yet. Issue the first one.';
  const turn = (to: number | undefined) =>
    navigate(addressOfKeys({ ...chosen, ...(to !== undefined && { offset: String(to) }) }));
  return html`
    <div class="page-head">
      <h1>Keys</h1>
      <${ActionButton} kind="main" onClick=${askForKey}>Issue a key<//>
    </div>
    <${Filters} specs=${SPECS} query=${query} addressOf=${addressOfKeys} />
    <section class="card" aria-label="Keys">
      <${Table} label="Keys" columns=${COLUMNS} rows=${value?.keys} fault=${fault} idOf=${({ id }: KeyView) => id} empty=${empty} />
      <${Pager} isNewest=${offset === 0} next=${value?.next} onTurn=${turn} />
      ${value !== undefined && 'total' in value && html`<p class="note">${counted(value.total, 'key')} in all.</p>`}
    </section>
  `;
}
