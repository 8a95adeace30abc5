import { useEffect, useRef } from 'preact/hooks';
import type { FoundAnswer, KeysAnswer, KeyView } from '../../api/answers.ts';
import { listFrom } from '../api.ts';
import { withoutSecret } from '../find.ts';
import { html } from '../html.ts';
import { askForKey } from '../key-dialogs.ts';
import { ActionButton } from '../parts/action-button.ts';
import { KeyLink, Meter, Pager, StateOf, TagChips, When } from '../parts/pieces.ts';
import { type Column, Table } from '../parts/table.ts';
import { PLAN_NAMES } from '../plan-fields.ts';
import { usePolled } from '../polled.ts';
import { navigate, type Route } from '../router.ts';
import { counted, planInWords, stateInWords } from '../words.ts';

const EVERY_MS = 5_000;
const SHOWN = 25;
/** Parts of the address that choose keys; they are the gateway's own filters. */
const FILTERS = ['name', 'tag', 'plan', 'state', 'near', 'sort'] as const;

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

/** All keys, or those that the address names. */
export function KeysPage({ route: { query } }: { route: Route }) {
  const offset = Number(query.get('offset') ?? 0) || 0;
  const text = query.get('find');
  const path = pathOf(query);
  const { value, fault } = usePolled<KeysAnswer | FoundAnswer>(`${path} ${offset}`, EVERY_MS, () =>
    listFrom<KeysAnswer | FoundAnswer>(path, offset, ({ keys }) => keys),
  );
  const isFiltered = text !== null || FILTERS.some((name) => name !== 'sort' && query.has(name));
  const empty = isFiltered
    ? text === null
      ? 'No key matches these filters.'
      : `No key, name or recent request matches “${text}”.`
    : 'There is no key yet. Issue the first one.';
  return html`
    <div class="page-head">
      <h1>Keys</h1>
      <${ActionButton} kind="main" onClick=${askForKey}>Issue a key<//>
    </div>
    <${Filters} query=${query} />
    <section class="card" aria-label="Keys">
      <${Table} label="Keys" columns=${COLUMNS} rows=${value?.keys} fault=${fault} idOf=${({ id }: KeyView) => id} empty=${empty} />
      <${Pager} isNewest=${offset === 0} next=${value?.next} onTurn=${(to: number | undefined) => turn(query, { offset: to?.toString() }, 'push')} />
      ${value !== undefined && 'total' in value && html`<p class="note">${counted(value.total, 'key')} in all.</p>`}
    </section>
  `;
}

function Filters({ query }: { query: URLSearchParams }) {
  const form = useRef<HTMLFormElement>(null);
  const [name, tag] = [query.get('name') ?? '', query.get('tag') ?? ''];
  // Fields are set when the address changes, as by a tag that is followed.
  useEffect(() => {
    for (const [field, value] of Object.entries({ name, tag }))
      (form.current?.elements.namedItem(field) as HTMLInputElement).value = value;
  }, [name, tag]);
  const choose = (name: string) => (event: Event) => turn(query, { [name]: (event.target as HTMLSelectElement).value });
  const select = (name: string, label: string, options: readonly (readonly [string, string])[]) => html`
    <label class="filter">${label}
      <select onChange=${choose(name)} value=${query.get(name) ?? ''}>
        ${options.map(([value, text]) => html`<option value=${value} selected=${value === (query.get(name) ?? '')}>${text}</option>`)}
      </select>
    </label>
  `;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const typed = new FormData(event.target as HTMLFormElement);
    const textOf = (name: string) => withoutSecret(String(typed.get(name) ?? ''));
    turn(query, { name: textOf('name'), tag: textOf('tag') });
  };
  return html`
    <form class="filters" ref=${form} onSubmit=${submit}>
      <label class="filter">Name contains
        <input name="name" type="search" autocomplete="off" maxlength="100" />
      </label>
      <label class="filter">Tag
        <input name="tag" type="search" autocomplete="off" spellcheck=${false} maxlength="200" placeholder="customer:acme" />
      </label>
      <button type="submit">Filter</button>
      ${select('plan', 'Plan', [['', 'All'], ...PLAN_NAMES.map((plan) => [plan, planInWords(plan)] as const)])}
      ${select('state', 'State', [['', 'All'], ...STATES.map((state) => [state, stateInWords(state)] as const)])}
      ${select('near', 'Day used', [
        ['', 'Any'],
        ['50', '50 % or more'],
        ['80', '80 % or more'],
        ['100', 'All of it'],
      ])}
      ${select('sort', 'Order', [
        ['', 'Newest first'],
        ['name', 'By name'],
        ['used', 'Most used of the day'],
        ['idle', 'Longest unused'],
      ])}
      ${query.size > 0 && html`<a href="/console/keys">Clear</a>`}
    </form>
  `;
}

const STATES = ['active', 'banned', 'disabled', 'expired', 'unreadable'];

/** The question to the gateway. */
function pathOf(query: URLSearchParams): string {
  const text = query.get('find');
  if (text !== null) return `/keys/find?text=${encodeURIComponent(withoutSecret(text))}`;
  const asked = new URLSearchParams({ limit: String(SHOWN) });
  for (const name of FILTERS) if (query.has(name)) asked.set(name, query.get(name) ?? '');
  return `/keys?${asked}`;
}

/** Puts parts of the address. A changed filter begins at the first page. */
function turn(
  query: URLSearchParams,
  parts: Readonly<Record<string, string | undefined>>,
  how: 'push' | 'replace' = 'replace',
): void {
  const changed = new URLSearchParams(query);
  changed.delete('offset');
  if (!('offset' in parts)) changed.delete('find');
  for (const [name, value] of Object.entries(parts)) {
    if (value) changed.set(name, value);
    else changed.delete(name);
  }
  navigate(`/console/keys${changed.size > 0 ? `?${changed}` : ''}`, how);
}
