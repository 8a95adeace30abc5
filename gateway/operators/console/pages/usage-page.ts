import type { UsageOfKey, UsageSum } from '../../api/answers.ts';
import { bodyOf } from '../api.ts';
import { csvOf, usageCells } from '../csv.ts';
import { download } from '../download.ts';
import { html } from '../html.ts';
import { type FilterSpec, Filters, filtersIn } from '../parts/filters.ts';
import { BanNote, KeyLink, TagChips } from '../parts/pieces.ts';
import { type Column, Table } from '../parts/table.ts';
import { usePolled } from '../polled.ts';
import { addressOfUsage, type Route } from '../router.ts';
import { readUsage } from '../whole-answers.ts';
import { counted, number, planInWords } from '../words.ts';

/** It takes long with many keys, and changes slowly. */
const EVERY_MS = 60_000;
/** The file contains all of them. */
const SHOWN = 100;

const FILTERS = ['by', 'tag', 'from', 'to'] as const;

const SPECS: readonly FilterSpec[] = [
  { name: 'by', label: 'Sum by tag', placeholder: 'customer' },
  { name: 'tag', label: 'Only with tag', placeholder: 'env:prod' },
  { name: 'from', label: 'From', type: 'date' },
  { name: 'to', label: 'To', type: 'date' },
];

type Row = UsageOfKey | UsageSum;

/** Shows what keys have used in a period, over all gateways: by key, or by the value of a tag. */
export function UsagePage({ route: { query } }: { route: Route }) {
  const { by, ...filters } = filtersIn(FILTERS, query);
  const asked = { ...filters, by: by === undefined ? 'key' : `tag:${by}` };
  const { value, fault } = usePolled(`usage ${JSON.stringify(asked)}`, EVERY_MS, () => readUsage(bodyOf, asked));
  const rows = value?.rows;
  const sum = (of: 'admitted' | 'refused') => number((rows ?? []).reduce((total, row) => total + row[of], 0));
  return html`
    <div class="page-head">
      <h1>Usage</h1>
      ${rows !== undefined && html`<button type="button" onClick=${() => download('usage.csv', 'text/csv', csvOf(usageCells(rows, asked.by)))}>Download CSV</button>`}
    </div>
    <p class="note">Decisions of all gateways, including those on revoked keys. Days are UTC; today and the 35 days before are kept.</p>
    <${Filters} specs=${SPECS} query=${query} addressOf=${addressOfUsage} />
    <section class="card" aria-label="Usage">
      <${Table} label="Usage" columns=${by === undefined ? OF_KEYS : columnsOfValues(by, filters)} rows=${rows?.slice(0, SHOWN)} fault=${fault}
        idOf=${idOf} empty="No matching key was used in this period." />
      ${rows !== undefined && rows.length > 0 && html`<p class="note">In total, ${sum('admitted')} admitted and ${sum('refused')} refused.${rows.length > SHOWN && ` These are the largest ${SHOWN} of ${counted(rows.length, 'row')}; the CSV file has all.`}</p>`}
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
const columnsOfValues = (tag: string, filters: Readonly<Record<string, string>>): readonly Column<UsageSum>[] => [
  {
    title: tag,
    show: ({ value }) =>
      value === undefined
        ? html`<span class="note">keys without this tag</span>`
        : html`<a class="wordy" href=${addressOfUsage({ ...filters, tag: [filters.tag, `${tag}:${value}`].filter(Boolean).join(',') })}>${value}</a>`,
  },
  { title: 'Keys', isFigure: true, show: ({ keys }) => number(keys) },
  ...COUNTS,
];
