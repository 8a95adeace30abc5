import { useState } from 'preact/hooks';
import { AUDIT_FILTERS, type AuditFilters, readEntries } from '../audit-log.ts';
import { ACTION_WORDS } from '../audit-words.ts';
import { asCsv } from '../csv.ts';
import { download } from '../download.ts';
import { html } from '../html.ts';
import { AuditList } from '../parts/audit-list.ts';
import { type FilterSpec, Filters, filtersIn } from '../parts/filters.ts';
import { Pager } from '../parts/pieces.ts';
import { addressOfAuditLog, navigate, type Route } from '../router.ts';
import { tell } from '../toast.ts';
import { counted, number } from '../words.ts';

const SHOWN = 50;
/** The maximum number of entries in a download. */
const MOST = 10_000;

const SPECS: readonly FilterSpec[] = [
  { name: 'actor', label: 'Who', placeholder: 'the whole name' },
  { name: 'action', label: 'Action', options: Object.entries(ACTION_WORDS) },
  { name: 'target', label: 'Target', placeholder: 'name or id of a key, a token or a plan' },
  { name: 'from', label: 'From', type: 'time' },
  { name: 'to', label: 'To', type: 'time' },
];

/** Shows the audit log: who did what, when, why and how, filtered by the address. */
export function AuditLogPage({ route: { query } }: { route: Route }) {
  const filters = filtersIn(AUDIT_FILTERS, query);
  const after = query.get('after') ?? undefined;
  const isFiltered = Object.keys(filters).length > 0;
  const turn = (to: string | undefined) =>
    navigate(addressOfAuditLog({ ...filters, ...(to !== undefined && { after: to }) }));
  const pager = (next: string | undefined) =>
    html`<${Pager} isNewest=${after === undefined} next=${next} onTurn=${turn} />`;
  return html`
    <div class="page-head">
      <h1>Audit log</h1>
      <${Download} filters=${filters} />
    </div>
    <p class="note">The log records each change of keys, bans, plans and tokens. It keeps the newest entries; older ones are in the gateways’ own logs.</p>
    <${Filters} specs=${SPECS} query=${query} addressOf=${addressOfAuditLog} />
    <section class="card" aria-label="Audit log">
      <${AuditList} filters=${filters} limit=${SHOWN} after=${after} below=${pager}
        empty=${isFiltered ? 'No entry matches these filters.' : 'Nothing has been changed yet.'} />
    </section>
  `;
}

/** Downloads everything that the filters select, not only the page that is shown. */
function Download({ filters }: { filters: AuditFilters }) {
  const [isRunning, setRunning] = useState(false);
  const run = async () => {
    if (isRunning) return;
    setRunning(true);
    try {
      const { activity, next } = await readEntries({ filters, limit: MOST });
      download('audit-log.csv', 'text/csv', asCsv(activity));
      tell(
        next === undefined
          ? `The file has ${counted(activity.length, 'entry', 'entries')}.`
          : `The file has the newest ${number(MOST)} entries. Set the filter “To” to download older ones.`,
      );
    } catch (fault) {
      tell(`The download failed. ${(fault as Error).message}`);
    } finally {
      setRunning(false);
    }
  };
  return html`<button type="button" aria-disabled=${isRunning ? 'true' : undefined} onClick=${run}>${isRunning ? 'Downloading …' : 'Download CSV'}</button>`;
}
