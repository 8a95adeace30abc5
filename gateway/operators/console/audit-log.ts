import { useState } from 'preact/hooks';
import { ACTION_WORDS, type Action, VIA_WORDS } from '../../stores/words.ts';
import type { ActivityView } from '../api/answers.ts';
import { readEntries } from '../clients.ts';
import { bodyOf, isKeyId, usePolled } from './api.ts';
import { asCsv } from './csv.ts';
import { addressOf } from './page-names.ts';
import {
  Card,
  type Column,
  download,
  type FilterSpec,
  Filters,
  type FilterValues,
  filtersIn,
  html,
  KeyLink,
  notify,
  Pager,
  Table,
  When,
} from './parts.ts';
import type { Route } from './router.ts';
import {
  counted,
  exactTime,
  fieldInWords,
  number,
  planInWords,
  tableFieldInWords,
  upperFirst,
  valueInWords,
} from './words.ts';

/** The audit log: who did what, when, why and how. */

/** The maximum number of entries in a download. */
const MOST = 10_000;

/** The filters of the admin API. */
const SPECS: readonly FilterSpec[] = [
  { name: 'actor', label: 'Who', placeholder: 'full name' },
  { name: 'action', label: 'Action', options: Object.entries(ACTION_WORDS) },
  { name: 'target', label: 'Target', placeholder: 'name or id' },
  { name: 'from', label: 'From', type: 'datetime-local' },
  { name: 'to', label: 'To', type: 'datetime-local' },
];

/** Shows the entries that the URL selects. */
export function AuditLogPage({ route }: { route: Route }) {
  const filters = filtersIn(SPECS, route.query);
  const after = route.query.get('after');
  return html`
    <div class="page-head">
      <h1>Audit log</h1>
      <${Download} filters=${filters} />
    </div>
    <p class="note">The audit log records each change to keys, bans, plans and tokens. Only the newest entries are kept here; older ones are in the gateways’ logs.</p>
    <${Filters} specs=${SPECS} route=${route} />
    <section class="card" aria-label="Audit log">
      <${AuditList} asked=${{ ...filters, ...(after !== null && { after }) }} limit=${50} pages=${route}
        empty=${Object.keys(filters).length > 0 ? 'No entry matches these filters.' : 'Nothing has been changed yet.'} />
    </section>
  `;
}

/** Downloads everything that the filters select, not only the page that is shown. */
function Download({ filters }: { filters: FilterValues }) {
  const [isRunning, setRunning] = useState(false);
  const run = async () => {
    if (isRunning) return;
    setRunning(true);
    try {
      const { activity, next } = await readEntries(bodyOf, filters, MOST);
      download('audit-log.csv', asCsv(activity));
      notify(
        next === undefined
          ? `The file has ${counted(activity.length, 'entry', 'entries')}.`
          : `The file has the newest ${number(MOST)} entries. Set the filter “To” to download older ones.`,
      );
    } catch (fault) {
      notify(`The download failed. ${(fault as Error).message}`);
    } finally {
      setRunning(false);
    }
  };
  return html`<button type="button" aria-disabled=${isRunning ? 'true' : undefined} onClick=${run}>${isRunning ? 'Downloading …' : 'Download CSV'}</button>`;
}

const columnsOf = (isOfOneTarget: boolean): readonly Column<ActivityView>[] => [
  { title: 'When', show: ({ at }) => html`<${When} at=${at} />` },
  { title: 'Who', show: ({ actor }) => html`<span class="actor">${actor}</span>` },
  {
    title: 'What',
    show: (entry) => html`${actionInWords(entry.action)} ${!isOfOneTarget && html`<${Target} of=${entry} />`}`,
  },
  {
    title: 'Difference',
    show: ({ action, changes }) => html`<${Changes} changes=${changes} areNew=${!action.endsWith('.change')} />`,
  },
  { title: 'Why', show: ({ reason }) => html`<span class="reason wordy">${reason || '–'}</span>` },
  { title: 'Via', show: ({ via }) => viaInWords(via) },
];

interface AuditListProps {
  /** The query of the call, without the limit. */
  readonly asked: FilterValues;
  readonly limit: number;
  /** Whether the page already names the target. */
  readonly isOfOneTarget?: boolean;
  readonly empty: string;
  /** The page whose URL selects a part of the list. Without it, there is no pager. */
  readonly pages?: Route;
}

/** Lists entries, newest first. */
function AuditList({ asked, limit, isOfOneTarget = false, empty, pages }: AuditListProps) {
  const read = () => readEntries(bodyOf, asked, limit);
  const { value, fault } = usePolled(`audit ${JSON.stringify(asked)}`, 5_000, read);
  return html`
    <${Table} label="Audit log" columns=${columnsOf(isOfOneTarget)} rows=${value?.activity} fault=${fault} empty=${empty} />
    ${pages && html`<${Pager} route=${pages} next=${value?.next} />`}
  `;
}

/** Shows the last entries that the filters select, with a link to all of them. */
export const AuditCard = ({ asked, isOfOneTarget }: Omit<AuditListProps, 'limit' | 'empty'>) => html`
  <${Card} title="Audit log" actions=${html`<a href=${addressOf('activity', asked)}>All entries</a>`}>
    <${AuditList} asked=${asked} limit=${5} isOfOneTarget=${isOfOneTarget} empty="The audit log has no matching entries." />
  <//>
`;

function Target({ of: { action, target, targetName } }: { of: ActivityView }) {
  if (action.startsWith('plan.'))
    return html`<span class="target"><a href=${addressOf('plans')}>${planInWords(target)}</a></span>`;
  const [id = ''] = target.split('/');
  if (action.startsWith('token.'))
    return html`<span class="target"><a class="wordy" href=${addressOf('access')}>${targetName ?? target}</a></span>`;
  if (isKeyId(id)) return html`<span class="target"><${KeyLink} id=${id} name=${targetName ?? id} /></span>`;
  return target !== '*' && html`<span class="target wordy">${target}</span>`;
}

type Change = ActivityView['changes'][number];

/**
 * Shows what a change did, field by field, from the old value to the new one.
 * @param areNew whether the fields belong to something new, and so had no value before
 */
export const Changes = ({ changes, areNew = false }: { changes: readonly Change[]; areNew?: boolean }) =>
  changes.length > 0 &&
  html`<ul class="plain changes">
    ${changes.map((change) => html`<li class="wordy">${recordedFieldInWords(change.field)}: ${valuesOf(change, areNew)}</li>`)}
  </ul>`;

/** The id of a changed secret has no old value, because it only identifies the secret. */
const valuesOf = ({ field, from, to }: Change, isNew: boolean) =>
  from === undefined && (isNew || field === 'secret')
    ? html`<ins>${shown(field, to)}</ins>`
    : html`<del>${shown(field, from)}</del> → <ins>${shown(field, to)}</ins>`;

function shown(field: string, value: string | undefined) {
  if (value !== undefined && TIME.test(value)) return html`<time datetime=${value}>${exactTime(value)}</time>`;
  // Only counts have separators, because names and ids can consist of digits too.
  return !value || isCount(field) ? valueInWords(value, field) : value;
}

/** A gateway of another version may use other actions and origins. */
const actionInWords = (action: string): string => ACTION_WORDS[action as Action] ?? action;
export const viaInWords = (via: ActivityView['via']): string => VIA_WORDS[via] ?? via;

const FIELDS: Readonly<Record<string, string>> = {
  expiresAt: 'Expires',
  graceSeconds: 'Grace period in seconds',
  bannedUntil: 'Banned until',
  seconds: 'Ban time in seconds',
  minuteRemaining: 'Requests left per minute',
  dayRemaining: 'Requests left per day',
};

/** Describes a field of a key, a secret, a ban or a token, or of the plan table, such as `free.minute`. */
function recordedFieldInWords(field: string): string {
  if (field.includes('.')) return tableFieldInWords(field);
  return FIELDS[field] ?? upperFirst(fieldInWords(field));
}

const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;

const COUNTS = new Set(['minute', 'day', 'minuteRemaining', 'dayRemaining', 'seconds', 'graceSeconds', 'keys']);

/** Every number in the plan table is also a count. */
const isCount = (field: string): boolean => field.includes('.') || COUNTS.has(field);
