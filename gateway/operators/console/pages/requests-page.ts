import { html } from '../html.ts';
import { type FilterSpec, Filters, filtersIn } from '../parts/filters.ts';
import { Pager } from '../parts/pieces.ts';
import { RequestList } from '../parts/request-list.ts';
import { addressOfRequests, navigate, type Route } from '../router.ts';

const SHOWN = 50;
/** Parts of the address that filter requests. They are the gateway's own filters. */
const FILTERS = ['keyId', 'tag', 'status', 'code', 'q', 'from', 'to'] as const;

/** These are suggested, but others can be typed. */
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

const SPECS: readonly FilterSpec[] = [
  { name: 'keyId', label: 'Key id' },
  { name: 'tag', label: 'Tag', placeholder: 'customer:acme' },
  { name: 'status', label: 'Status', suggestions: STATUSES, placeholder: '429 or 4xx' },
  { name: 'code', label: 'Error code', suggestions: CODES },
  { name: 'q', label: 'Contains', placeholder: 'id, path, address' },
  { name: 'from', label: 'From', type: 'time' },
  { name: 'to', label: 'To', type: 'time' },
];

/** Lists the last requests of all gateways, or those that the address selects. */
export function RequestsPage({ route: { query } }: { route: Route }) {
  const filters = filtersIn(FILTERS, query);
  const after = query.get('after');
  const asked = { limit: String(SHOWN), ...filters, ...(after !== null && { after }) };
  const isFiltered = Object.keys(filters).length > 0;
  const turn = (to: string | undefined) =>
    navigate(addressOfRequests({ ...filters, ...(to !== undefined && { after: to }) }));
  const pager = (next: string | undefined) => html`<${Pager} isNewest=${after === null} next=${next} onTurn=${turn} />`;
  return html`
    <h1>Requests</h1>
    <p class="note">The last requests of all gateways. Open one to see what happened, why, and what to do. Older ones are in the log.</p>
    <${Filters} specs=${SPECS} query=${query} addressOf=${addressOfRequests} />
    <section class="card" aria-label="Requests">
      <${RequestList} label="Requests" asked=${asked} hasKeys=${true} opensOnlyOne=${filters.q !== undefined} after=${pager}
        empty=${isFiltered ? 'No remembered request matches these filters.' : 'There are no requests yet.'} />
    </section>
  `;
}
