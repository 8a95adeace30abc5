import { useEffect, useRef } from 'preact/hooks';
import { withoutSecret } from '../find.ts';
import { html } from '../html.ts';
import { toIso, toLocal } from '../key-dialogs.ts';
import { RequestList } from '../parts/request-list.ts';
import { addressOfRequests, navigate, type Route } from '../router.ts';

const SHOWN = 50;
const TIMES = ['from', 'to'] as const;
/** Parts of the address that choose requests; they are the gateway's own filters. */
const FILTERS = ['keyId', 'status', 'code', 'q', ...TIMES] as const;
type Filter = (typeof FILTERS)[number];

/** The last requests of all gateways, or those that the address names. */
export function RequestsPage({ route: { query } }: { route: Route }) {
  const filters = filtersIn(query);
  const after = query.get('after');
  const asked = new URLSearchParams({ limit: String(SHOWN), ...filters, ...(after !== null && { after }) });
  const isFiltered = Object.keys(filters).length > 0;
  const turn = (to: string | undefined) =>
    navigate(addressOfRequests({ ...filters, ...(to !== undefined && { after: to }) }));
  const pager = (next: string | undefined) =>
    (after !== null || next !== undefined) &&
    html`<p class="bar">
      <button type="button" disabled=${after === null} onClick=${() => turn(undefined)}>Newest</button>
      <button type="button" disabled=${next === undefined} onClick=${() => turn(next)}>Older</button>
    </p>`;
  return html`
    <h1>Requests</h1>
    <p class="note">The last requests of all gateways. Each opens to what happened, why, and what to do. Older ones are in the log.</p>
    <${Filters} query=${query} />
    <section class="card" aria-label="Requests">
      <${RequestList} label="Requests" asked=${asked} hasKeys=${true} opensOnlyOne=${filters.q !== undefined} after=${pager}
        empty=${isFiltered ? 'No request that the gateways remember matches these filters.' : 'The gateways remember no request yet.'} />
    </section>
  `;
}

function filtersIn(query: URLSearchParams): Partial<Record<Filter, string>> {
  const filled = FILTERS.map((name) => [name, query.get(name) ?? ''] as const).filter(([, value]) => value !== '');
  return Object.fromEntries(filled);
}

function Filters({ query }: { query: URLSearchParams }) {
  const form = useRef<HTMLFormElement>(null);
  const address = query.toString();
  // Fields are set when the address changes, not with each answer: what is being typed stays.
  useEffect(() => {
    for (const name of FILTERS) {
      const field = form.current?.elements.namedItem(name);
      if (field instanceof HTMLInputElement) field.value = typedOf(name, new URLSearchParams(address).get(name) ?? '');
    }
  }, [address]);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const typed = new FormData(event.target as HTMLFormElement);
    const given = FILTERS.map((name) => [name, filterOf(name, String(typed.get(name) ?? ''))] as const);
    navigate(addressOfRequests(Object.fromEntries(given.filter(([, value]) => value !== ''))), 'replace');
  };
  const text = (name: Filter, label: string, options = {}) => html`
    <label class="filter">${label}<input name=${name} type="search" autocomplete="off" spellcheck=${false} maxlength="200" ...${options} /></label>
  `;
  const time = (name: Filter, label: string) => html`
    <label class="filter">${label}<input name=${name} type="datetime-local" /></label>
  `;
  const choices = (id: string, values: readonly string[]) =>
    html`<datalist id=${id}>${values.map((value) => html`<option value=${value} />`)}</datalist>`;
  return html`
    <form class="filters requests" ref=${form} onSubmit=${submit}>
      ${text('keyId', 'Key id')}
      ${text('status', 'Status', { list: 'statuses', placeholder: '429 or 4xx' })}
      ${text('code', 'Error code', { list: 'codes' })}
      ${text('q', 'Contains', { placeholder: 'id, path, address' })}
      <div class="filters">
        ${time('from', 'From')} ${time('to', 'To')}
        <button type="submit">Filter</button>
        ${query.size > 0 && html`<a href="/console/requests">Clear</a>`}
      </div>
      ${choices('statuses', STATUSES)} ${choices('codes', CODES)}
    </form>
  `;
}

/** Those that are asked for most. Others can be typed. */
const STATUSES = ['2xx', '4xx', '5xx', '401', '403', '429', '499', '502', '503', '504'];
const CODES = [
  'rate_limit_exceeded',
  'key_banned',
  'unauthorized',
  'insufficient_scope',
  'bad_gateway',
  'gateway_timeout',
  'unavailable',
];

const isTime = (name: Filter): boolean => TIMES.some((one) => one === name);

/** A filter as its field shows it. A time that cannot be read is left to the gateway to refuse. */
const typedOf = (name: Filter, value: string): string =>
  isTime(name) ? (Number.isNaN(Date.parse(value)) ? '' : toLocal(value)) : value;

const filterOf = (name: Filter, typed: string): string => (isTime(name) ? (toIso(typed) ?? '') : withoutSecret(typed));
