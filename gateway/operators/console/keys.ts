import { PLAN_NAMES } from '../../limiter/plans.ts';
import type { BansAnswer, FoundAnswer, KeysAnswer, KeyView, UsageOfKey, UsageSum } from '../api/answers.ts';
import { firstFilled, inOrder, readUsage, searchText } from '../clients.ts';
import { bodyOf, useKeyList, usePolled } from './api.ts';
import { csvOf, usageCells } from './csv.ts';
import { askForKey, askToLiftBan } from './key-dialogs.ts';
import { addressOf } from './page-names.ts';
import {
  ActionButton,
  BanNote,
  type Column,
  download,
  type FilterSpec,
  Filters,
  type FilterValues,
  filtersIn,
  html,
  KeyLink,
  Meter,
  Pager,
  StateOf,
  Table,
  TagChips,
  When,
} from './parts.ts';
import type { Route } from './router.ts';
import { counted, number, planInWords, runningBan, upperFirst } from './words.ts';

/** The pages that list keys: all keys, banned keys, and usage. */

const SHOWN = 25;
const ORDERS = { name: 'By name', used: 'Most used today', idle: 'Longest unused' };
const isOrder = (sort = ''): sort is keyof typeof ORDERS => Object.hasOwn(ORDERS, sort);
const STATES = ['active', 'banned', 'disabled', 'expired', 'unreadable'];

/** The filters of the admin API. */
const SPECS: readonly FilterSpec[] = [
  { name: 'name', label: 'Name contains' },
  { name: 'tag', label: 'Tag', placeholder: 'customer=acme' },
  { name: 'plan', label: 'Plan', options: PLAN_NAMES.map((plan) => [plan, planInWords(plan)] as const) },
  { name: 'state', label: 'State', options: STATES.map((state) => [state, upperFirst(state)] as const) },
  {
    name: 'near',
    label: 'Day limit used',
    options: Object.entries({ 50: '50 % or more', 80: '80 % or more', 100: 'All of it' }),
  },
  { name: 'sort', label: 'Order', otherwise: 'Newest first', options: Object.entries(ORDERS) },
];

const COLUMNS: readonly Column<KeyView>[] = [
  { title: 'Key', show: (key) => html`<${KeyLink} ...${key} /><${TagChips} tags=${key.tags} />` },
  { title: 'Plan', show: ({ plan }) => planInWords(plan) },
  { title: 'State', show: StateOf },
  { title: 'Used this minute', show: ({ buckets }) => html`<${Meter} bucket=${buckets?.minute} label="Minute" />` },
  { title: 'Used today', show: ({ buckets }) => html`<${Meter} bucket=${buckets?.day} label="Day" />` },
  { title: 'Last used', show: ({ lastUsedAt }) => html`<${When} at=${lastUsedAt} none="never" />` },
];

/** Shown if the page no longer exists, for example because keys were revoked. */
const PAST_THE_END = 'The list ends before this page.';

/** Lists all keys, or those that the URL selects. */
export function KeysPage({ route }: { route: Route }) {
  const { query } = route;
  const offset = query.get('offset') || '0';
  const text = query.get('find');
  const filters = filtersIn(SPECS, query);
  const { sort, ...narrowing } = filters;
  const order = text === null && isOrder(sort) ? sort : undefined;
  const asked = {
    ...(text === null ? { limit: String(SHOWN), ...filters } : { text: searchText(text).text }),
    // A sorted list has one page.
    offset: order === undefined ? offset : '0',
  };
  const path = text === null ? '/keys' : '/keys/find';
  const { value, fault } = useKeyList<KeysAnswer | FoundAnswer>(path, asked, order && inOrder(order));
  const empty =
    text !== null
      ? `No key, name or recent request matches “${text}”.`
      : offset !== '0'
        ? PAST_THE_END
        : Object.keys(narrowing).length > 0
          ? 'No key matches these filters.'
          : 'There are no keys yet. Issue the first one.';
  return html`
    <div class="page-head">
      <h1>Keys</h1>
      <${ActionButton} kind="main" onClick=${askForKey}>Issue a key<//>
    </div>
    <${Filters} specs=${SPECS} route=${route} />
    <section class="card" aria-label="Keys">
      <${Table} label="Keys" columns=${COLUMNS} rows=${value?.keys} fault=${fault} empty=${empty} />
      <${Pager} route=${route} next=${value?.next} />
      ${value !== undefined && 'total' in value && html`<p class="note">${order !== undefined && value.keys.length === SHOWN && `These are the first ${SHOWN} in this order. `}${counted(value.total, 'key')} in all.</p>`}
    </section>
  `;
}

/** Lists the active bans, each with a button that lifts it. */
export function BansPage({ route }: { route: Route }) {
  const offset = route.query.get('offset') || '0';
  const { value, fault } = usePolled(`bans ${offset}`, 3_000, () =>
    firstFilled<BansAnswer>(bodyOf, '/bans', { offset }, ({ bans }) => bans),
  );
  const columns: readonly Column<KeyView>[] = [
    { title: 'Key', show: (key) => html`<${KeyLink} ...${key} />` },
    { title: 'Plan', show: ({ plan }) => planInWords(plan) },
    { title: 'Banned', show: runningBan },
    {
      title: 'Why',
      show: ({ banReason }) =>
        html`<span class="wordy">${banReason ?? 'Kept sending more than nine times its limit'}</span>`,
    },
    {
      title: 'Action',
      show: (key) => html`<${ActionButton} kind="small" of=${key.name} onClick=${() => askToLiftBan(key)}>Lift<//>`,
    },
  ];
  return html`
    <h1>Bans</h1>
    <p class="note">Each further ban on a key within a day is twice as long, up to a day. A key whose only client respects Retry-After is never banned.</p>
    <section class="card" aria-label="Bans">
      <${Table} label="Bans" columns=${columns} rows=${value?.bans} fault=${fault}
        empty=${offset !== '0' ? PAST_THE_END : 'No key is banned.'} />
      <${Pager} route=${route} next=${value?.next} />
    </section>
  `;
}

/** Usage takes a long time to read if there are many keys, and it changes slowly. */
const USAGE_EVERY_MS = 60_000;
/** The CSV file contains all rows. */
const ROWS_SHOWN = 100;

const USAGE_SPECS: readonly FilterSpec[] = [
  { name: 'by', label: 'Sum by tag', placeholder: 'customer' },
  { name: 'tag', label: 'Only with tag', placeholder: 'env=prod' },
  { name: 'from', label: 'From', type: 'date' },
  { name: 'to', label: 'To', type: 'date' },
];

type Row = UsageOfKey | UsageSum;

/** Shows usage in a period, summed over all gateways, by key or by the value of a tag. */
export function UsagePage({ route }: { route: Route }) {
  const { by, ...filters } = filtersIn(USAGE_SPECS, route.query);
  const asked = { ...filters, by: by === undefined ? 'key' : `tag:${by}` };
  const { value, fault } = usePolled(`usage ${JSON.stringify(asked)}`, USAGE_EVERY_MS, () => readUsage(bodyOf, asked));
  const rows = value?.rows;
  const sum = (of: 'admitted' | 'refused') => number((rows ?? []).reduce((total, row) => total + row[of], 0));
  return html`
    <div class="page-head">
      <h1>Usage</h1>
      ${rows !== undefined && html`<button type="button" onClick=${() => download('usage.csv', csvOf(usageCells(rows, asked.by)))}>Download CSV</button>`}
    </div>
    <p class="note">Decisions of all gateways, including those on revoked keys. Days are UTC; today and the 35 days before are kept.</p>
    <${Filters} specs=${USAGE_SPECS} route=${route} />
    <section class="card" aria-label="Usage">
      <${Table} label="Usage" columns=${by === undefined ? OF_KEYS : columnsOfValues(by, filters)} rows=${rows?.slice(0, ROWS_SHOWN)} fault=${fault}
        idOf=${idOf} empty="No matching key was used in this period." />
      ${rows !== undefined && rows.length > 0 && html`<p class="note">In total, ${sum('admitted')} admitted and ${sum('refused')} refused.${rows.length > ROWS_SHOWN && ` These are the largest ${ROWS_SHOWN} of ${counted(rows.length, 'row')}; the CSV file contains all.`}</p>`}
      ${value !== undefined && (filters.from ?? '9') < value.keptFrom && html`<p class="note" role="status">Usage before ${value.keptFrom} is not kept.</p>`}
    </section>
  `;
}

const idOf = (row: Row): string => ('id' in row ? row.id : (row.value ?? ''));

const COUNTS: readonly Column<Row>[] = [
  { title: 'Admitted', isFigure: true, show: ({ admitted }) => number(admitted) },
  { title: 'Refused', isFigure: true, show: ({ refused }) => number(refused) },
];

const OF_KEYS: readonly Column<UsageOfKey>[] = [
  {
    title: 'Key',
    show: (key) => html`<${KeyLink} ...${key} /><${TagChips} tags=${key.tags} /> <${BanNote} ban=${key.ban} />`,
  },
  { title: 'Plan', show: ({ plan }) => planInWords(plan) },
  ...COUNTS,
];

/** Each value links to the keys that have it. */
const columnsOfValues = (tag: string, filters: FilterValues): readonly Column<UsageSum>[] => [
  {
    title: tag,
    show: ({ value }) =>
      value === undefined
        ? html`<span class="note">keys without this tag</span>`
        : html`<a class="wordy" href=${addressOf('usage', { ...filters, tag: [filters.tag, `${tag}=${value}`].filter(Boolean).join(',') })}>${value}</a>`,
  },
  { title: 'Keys', isFigure: true, show: ({ keys }) => number(keys) },
  ...COUNTS,
];
